//! Experiments with real clusters: cells, their archive, and its report.

pub mod archive;
pub mod cell;
pub mod cluster_run;
pub mod experiment;
pub mod flame;
pub mod machine;
mod pinning;
pub mod report;
pub mod runner;
