//! # quorate-client
//!
//! Being built.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod cluster;
pub mod core;
