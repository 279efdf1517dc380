//! Hostile input on every port of real replicas. The sender receives an error where it deserves one, every refusal is counted
//! by source and reason, nothing grows, and the cluster continues to serve.

mod attacker;
mod clients;
mod descriptors;
mod floods;
mod peers;
mod stops;
mod target;
