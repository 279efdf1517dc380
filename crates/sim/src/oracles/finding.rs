//! Findings of oracles.

use crate::named_enum::named_enum;
use quorate_types::Time;
use std::fmt;

/// A finding of an oracle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Time of the finding.
    pub at: Time,
    /// The oracle.
    pub oracle: Oracle,
    /// A description for people.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at.0 / 1_000_000_000, self.at.0 % 1_000_000_000);
        write!(f, "{seconds}.{rest:09} s: {}: {}", self.oracle, self.what)
    }
}

impl std::error::Error for Failure {}

named_enum! {
    /// The oracles.
    pub enum Oracle {
        /// Two replicas decided or executed different blocks at one height, or ended with different states.
        Agreement = "agreement",
        /// An operation was applied twice.
        ExactlyOnce = "exactly once",
        /// A client received a wrong result.
        Results = "right results",
        /// An answered operation is lost.
        Durability = "durability",
        /// No order of the operations explains the answers.
        Linearizable = "linearizable",
        /// A replica signed two statements for one slot.
        SameSlot = "same slot",
        /// A promise left before it was on disk.
        Held = "held until durable",
        /// A replica holds too much.
        Bounds = "bounds",
        /// Progress took too long.
        Liveness = "liveness",
        /// Views repeat without progress.
        Livelock = "livelock",
        /// A view was left without a certificate, or the honest replicas never meet in one.
        Pacemaker = "pacemaker",
        /// A replica stopped by itself.
        Stopped = "stopped",
        /// An honest replica closed its link to another.
        Links = "links",
        /// A replay of the same inputs led to other outputs.
        Replay = "replay",
        /// An honest replica treated an honest one as Byzantine.
        Accusation = "accusation",
        /// An assertion of the code failed.
        Panic = "no panic",
    }
}

impl Oracle {
    /// Explains a finding for readers who have never seen the code, and where to look in the trace.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Agreement => {
                "Honest replicas have decided different blocks at one height, or ended with different states: they \
                 are no longer copies of each other. Look for the `decides` lines of that height, \
                 and before them for the votes that each of the replicas got."
            }
            Self::ExactlyOnce => {
                "An operation was applied twice. Look for its number in the `executes` lines of the replica."
            }
            Self::Results => {
                "A client received a result that does not follow from the agreed order of operations. Look for the \
                 number of the operation: `calls`, `executes`, `believes`."
            }
            Self::Durability => {
                "A client has the answer to an operation that no replica has executed: the operation is lost. Look \
                 for the number of the operation, and for `crashes` before it."
            }
            Self::Linearizable => {
                "No order of the operations explains the answers of clients. The shortest inexplicable part of the \
                 history follows; look for its operations: `calls` and `believes`."
            }
            Self::SameSlot => {
                "A replica has signed two statements for a slot that may be signed once, so two different blocks may \
                 be decided. Look for its `sends` lines of that kind, view and height."
            }
            Self::Held => {
                "A promise has left before it was on disk: a crash would have made the replica break it. Look for \
                 the last `syncs` of the replica before it `sends`."
            }
            Self::Bounds => {
                "A replica holds more than its window allows, or loops without input: a peer can fill its memory or \
                 keep it busy."
            }
            Self::Liveness => {
                "After the heal, nothing was decided, or a client was not answered, for longer than the protocol \
                 promises. Look for the last `decides`, and from there for `timer`, `enters` and \
                 `refuses`."
            }
            Self::Pacemaker => {
                "A replica has entered a view without a certificate, or the honest replicas never meet in a view \
                 with an honest leader. Look for its `notes` lines, and for the messages that it got \
                 before."
            }
            Self::Livelock => {
                "After the heal, views changed until each leader had its turn, and nothing was executed: the views \
                 will repeat for ever. Look for the `enters` lines of one round of leaders, and \
                 between them for refused messages."
            }
            Self::Stopped => {
                "A replica has stopped by itself although its disk and its machine were in order. Its reason follows."
            }
            Self::Links => {
                "An honest replica has closed its connection to another honest one, for breaking a rule of links."
            }
            Self::Replay => {
                "A second replica with the same inputs has given other outputs: something beside the inputs decides \
                 the outputs, so no trace of the replica is repeatable."
            }
            Self::Accusation => {
                "An honest replica has refused a message of another honest one as a breach of the rules. Look for \
                 the `refuses` line, and for the message that it names."
            }
            Self::Panic => {
                "An assertion of the code has failed: a condition that the code relies on does not hold. The last \
                 lines of the trace lead to it."
            }
        }
    }
}

/// The judgement of an oracle about one observation.
pub(crate) type Judged = Result<(), (Oracle, String)>;
