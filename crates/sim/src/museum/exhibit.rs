//! An exhibit of the museum.

use crate::oracles::{Failure, Oracle};
use crate::report::Report;
use crate::settings::BadSettings;
use quorate_consensus::Entry;

/// A published failure and a variant that has it.
#[derive(Clone, Copy, Debug)]
pub struct Exhibit {
    /// Its number in the catalogue.
    pub id: &'static str,
    /// What went wrong, where it was published.
    pub failure: &'static str,
    /// What is broken here.
    pub variant: &'static str,
    /// Any of these oracles has caught it.
    pub caught_by: &'static [Oracle],
    /// Seeds within which it must be caught.
    pub within: u64,
    /// A run of the variant.
    pub run: fn(&Entry, u64) -> Result<Report, BadSettings>,
}

/// What became of an exhibit.
#[derive(Clone, PartialEq, Debug)]
pub struct Caught {
    /// Runs until it was caught, that one included.
    pub seeds: u64,
    /// What was found.
    pub failure: Failure,
}

impl Exhibit {
    /// Runs it, seed after seed, until it is caught.
    ///
    /// # Errors
    /// When the protocol does not suit.
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
