//! Configuration files: a reader that names the line of each error, and `cluster.toml`, which nodes and clients share.
//!
//! * Every field is documented in a [`reader::Field`]; the comments of generated files are the same texts.
//! * Every field must be present, and unknown fields are refused.
//! * Every error is one line: file, line, field, the expected value, and what to do.

pub mod addresses;
pub mod cluster_file;
mod error;
pub mod fields;
mod number;
pub mod reader;

pub use cluster_file::{CLUSTER_FILE, ClusterFile, ReplicaAddresses};
pub use error::ConfigError;
pub use number::{parse_size, show_size};
