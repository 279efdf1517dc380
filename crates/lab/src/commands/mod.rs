//! The commands, one file each.

pub mod demo;
pub mod exam;
pub mod judge;
mod ledger;
pub mod load;
mod load_bar;
pub mod machine;
mod names;
mod run_folder;
mod seeds;
pub mod service_sim;
pub mod sim;
pub mod torture;
pub mod twins;
mod workers;
