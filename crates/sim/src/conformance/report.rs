//! Reports about the figures of a protocol.

use crate::oracles::Failure;
use crate::settings::BadSettings;
use quorate_types::ProtocolId;
use std::fmt;

/// The measured figures of a protocol at one size.
#[derive(Clone, Debug)]
pub struct FiguresReport {
    /// Name of the protocol.
    pub protocol: ProtocolId,
    /// Number of replicas.
    pub n: usize,
    /// One line for each figure.
    pub lines: Vec<FigureLine>,
    /// Notes that are needed to compare the figures with the paper's.
    pub remarks: &'static [&'static str],
}

impl FiguresReport {
    /// Whether every figure is as stated.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.lines.iter().all(FigureLine::agrees)
    }
}

/// One figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureLine {
    /// The counted quantity.
    pub what: String,
    /// The protocol's formula.
    pub formula: String,
    /// The formula's value at this size.
    pub stated: u64,
    /// The measured value.
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

    /// Whether the figure is as stated.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.measured.is(self.stated)
    }
}

/// A total over a number of units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The total.
    pub total: u64,
    /// Number of units: blocks, intervals or units of time.
    pub of: u64,
}

impl Measured {
    /// Whether each unit has exactly this many.
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

/// The reason why no figures were measured.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// The protocol states no figures.
    #[error("{0} states no figures (Examined::FIGURES)")]
    NoFigures(ProtocolId),
    /// The protocol does not support this size.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// The protocol fails even without faults.
    #[error(transparent)]
    Failure(#[from] Failure),
}
