//! The commands, one file each.

pub mod arguments;
pub mod backup;
pub mod call;
mod client;
mod delta;
mod diff;
mod escape;
mod input;
pub mod inspect;
pub mod kv;
pub mod node;
pub mod restore;
pub mod status;
pub mod stop;
pub mod testnet;
pub mod up;
