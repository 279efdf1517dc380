//! Hostile input on every port of real replicas: whoever deserves one hears an error, everything is counted by
//! source and reason, nothing grows, and the cluster goes on serving.

#[path = "../common/mod.rs"]
mod attacker;
mod clients;
mod descriptors;
mod floods;
mod peers;
mod target;
