//! An exhibit of the museum.

use crate::oracles::{Failure, Oracle};
use crate::report::Report;
use crate::settings::BadSettings;
use quorate_consensus::Entry;

/// A published failure with a variant that has it.
#[derive(Clone, Copy, Debug)]
pub struct Exhibit {
    /// Number in the catalogue.
    pub id: &'static str,
    /// The published failure.
    pub failure: &'static str,
    /// The broken part of the variant.
    pub variant: &'static str,
    /// Oracles that may catch the failure.
    pub caught_by: &'static [Oracle],
    /// Number of seeds within which the failure must be caught.
    pub within: u64,
    /// Runs the variant with a seed.
    pub run: fn(&Entry, u64) -> Result<Report, BadSettings>,
}

/// The finding about an exhibit.
#[derive(Clone, PartialEq, Debug)]
pub struct Caught {
    /// Number of runs until the failure was caught, including that one.
    pub seeds: u64,
    /// The finding.
    pub failure: Failure,
}

impl Exhibit {
    /// Runs seed after seed until the failure is caught.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support the run.
    pub fn catch(&self, entry: &Entry) -> Result<Option<Caught>, BadSettings> {
        for seed in 0..self.within {
            let failure = (self.run)(entry, seed)?.failure;
            if let Some(failure) = failure.filter(|failure| self.caught_by.contains(&failure.oracle)) {
                return Ok(Some(Caught { seeds: seed.saturating_add(1), failure }));
            }
        }
        Ok(None)
    }
}
