//! Reports about the figures of a protocol.

use crate::oracles::Failure;
use crate::settings::BadSettings;
use quorate_types::ProtocolId;
use std::fmt;

/// A protocol of so many replicas, measured.
#[derive(Clone, Debug)]
pub struct FiguresReport {
    /// Its name.
    pub protocol: ProtocolId,
    /// Replicas.
    pub n: usize,
    /// Every figure.
    pub lines: Vec<FigureLine>,
    /// What has to be known to compare them with the paper's.
    pub remarks: &'static [&'static str],
}

impl FiguresReport {
    /// Whether every figure is what the protocol states.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.lines.iter().all(FigureLine::agrees)
    }
}

/// One figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureLine {
    /// What is counted.
    pub what: String,
    /// How the protocol states it.
    pub formula: String,
    /// Its value for so many replicas.
    pub stated: u64,
    /// What was measured.
    pub measured: Measured,
}

impl FigureLine {
    pub(super) fn new(
        what: impl Into<String>,
        formula: impl ToString,
        stated: u64,
        measured: Measured,
    ) -> Self {
        Self { what: what.into(), formula: formula.to_string(), stated, measured }
    }

    /// Whether it is what the protocol states.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.measured.is(self.stated)
    }
}

/// So much in all, of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// In all.
    pub total: u64,
    /// Blocks, intervals, units of time: whatever the figure is about.
    pub of: u64,
}

impl Measured {
    /// Whether each has exactly so many.
    #[must_use]
    pub fn is(&self, each: u64) -> bool {
        self.of > 0 && self.of.checked_mul(each) == Some(self.total)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.total.checked_div(self.of), self.total.checked_rem(self.of)) {
            (Some(each), Some(0)) => write!(f, "{each}"),
            _ => write!(f, "{}/{}", self.total, self.of),
        }
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// The protocol does not say what it costs.
    #[error("{0} states no figures (Protocol::FIGURES)")]
    NoFigures(ProtocolId),
    /// So many replicas do not suit it.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// Not even without faults does it work.
    #[error(transparent)]
    Failure(#[from] Failure),
}
