//! The commands, each with a file or folder of its own.

pub mod bench;
pub mod demo;
pub mod exam;
pub mod judge;
mod ledger;
pub mod lie;
pub mod load;
mod load_bar;
pub mod machine;
mod names;
mod own_cluster;
pub mod relay;
pub mod report;
mod run_folder;
mod seeds;
pub mod service_sim;
pub mod sim;
pub mod torture;
pub mod twins;
mod workers;
