//! Experiments with real clusters: cells, their archive, and its report.

pub mod archive;
pub mod report;
