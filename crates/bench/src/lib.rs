//! Experiments with real clusters: cells, their archive, and its report.

pub mod archive;
pub mod cell;
pub mod cluster_run;
pub mod experiment;
pub mod machine;
pub mod report;
pub mod runner;
