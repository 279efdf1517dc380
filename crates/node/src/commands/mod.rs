//! The commands, one file each.

pub mod arguments;
mod delta;
pub mod kv;
pub mod node;
pub mod status;
pub mod testnet;
pub mod up;
