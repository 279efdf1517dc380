//! Tests of the rules in the tables of the engine and of the rule sets.

mod hotstuff;
mod hotstuff2;
mod jolteon;
mod kit;
mod records;
mod shared;
