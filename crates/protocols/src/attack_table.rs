//! Tables of attacks, for the exam's host `own`, and the second block of an attacker that equivocates.

use quorate_types::Block;

/// Returns a table of attacks: the name of each, its function, and one sentence about it. The function after `hears`
/// remembers messages to the attacker.
macro_rules! attack_table {
    ($retelling:ty, hears $hear:ident: $($name:literal = $answer:expr, $about:literal;)*) => {
        &[$(quorate_consensus::AttackEntry {
            name: $name,
            about: $about,
            make: || Box::new(<$retelling>::listening($answer, $hear)),
        }),*]
    };
    ($retelling:ty: $($name:literal = $answer:expr, $about:literal;)*) => {
        &[$(quorate_consensus::AttackEntry {
            name: $name,
            about: $about,
            make: || Box::new(<$retelling>::new($answer)),
        }),*]
    };
}
pub(crate) use attack_table;

/// Returns another valid block with the same payload: its time is one nanosecond later.
pub(crate) fn other(block: &Block) -> Block {
    Block { time_ns: block.time_ns.saturating_add(1), ..block.clone() }
}
