//! Facts about a protocol that only its examiners use: simulator, exam, Twins, and the tests of the registry.

use crate::attack::AttackEntry;
use crate::figures::Figures;
use crate::pace::Pace;
use crate::protocol::Protocol;
use quorate_types::{Committee, Time};

/// A protocol that can be examined. [`Entry::of`](crate::Entry::of) demands it: registering a protocol enrols it in the exam.
pub trait Examined: Protocol {
    /// Attacks that need knowledge of the protocol. A protocol's folder keeps them in `byzantine.rs`.
    const ATTACKS: &'static [AttackEntry] = &[];
    /// The cost of the good case. The tests of the registry demand it of every registered protocol.
    const FIGURES: Option<Figures> = None;
    /// Parameters that only the simulator may set. The configuration files of nodes refuse them.
    const EXAM_ONLY: &'static [&'static str] = &[];
    /// Parameters that select a mode of operation, each with the values from which the exam draws.
    const CHOICES: &'static [Choice] = &[];

    /// Returns the longest time from a healed network to the first new commit. The exam holds the protocol to it.
    fn recovery(params: &Self::Params, committee: &Committee, healed: &Healed) -> Time;

    /// Returns parameters for the exam, whose network heals to delays of at most `delta_ns`.
    fn exam_params(delta_ns: u64, guarded: bool) -> Self::Params;

    /// Returns the notes by which an observer sees why views are left. `None` for protocols that leave views without a
    /// certificate.
    fn pace(params: &Self::Params) -> Option<Pace> {
        let _ = params;
        None
    }
}

/// A parameter that selects a mode of operation, with some of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The parameter, a text.
    pub name: &'static str,
    /// Values from which the exam draws.
    pub values: &'static [&'static str],
}

/// Facts about an outage when the network has healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Healed {
    /// Largest delay from now on.
    pub delta_ns: u64,
    /// Duration of the outage.
    pub outage_ns: u64,
    /// Longest pause between two retransmissions of a client.
    pub client_retry_ns: u64,
    /// Time to fetch missing blocks and bodies at the configured bandwidth.
    pub fetch_ns: u64,
    /// Number of replicas that have restarted or are about to.
    pub restarted: usize,
}
