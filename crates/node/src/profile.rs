//! Profiles of this process: where it spends its CPU time, and where it allocates. Profiles need the feature `profile`.
//!
//! A profile is text in the folded form, which all tools for flame graphs read: a line for each stack, with its functions
//! from the outermost to the innermost, and its weight.
//!
//! ```text
//! main;serve;turn;check 17
//! ```

#[cfg(feature = "profile")]
mod allocations;
#[cfg(feature = "profile")]
mod folding;
#[cfg(feature = "profile")]
mod sampler;

#[cfg(feature = "profile")]
pub(crate) use allocations::note;
#[cfg(feature = "profile")]
use sampler::Sampler;

use crate::exit::Failure;

/// Whether this program has a profiler.
pub const IS_AVAILABLE: bool = cfg!(feature = "profile");
/// The advice of a program without a profiler.
pub const WITHOUT: &str =
    "this program has no profiler; build it with `cargo build --profile profiling --features profile`";
/// The name of a profile in the folder of its node.
pub const FILE: &str = "profile.folded";

/// The kind of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// CPU time: the weight of a stack is its number of samples.
    Cpu,
    /// Allocations: the weight of a stack is its number of allocations, estimated from a sample of them.
    Alloc,
}

impl Profile {
    /// All kinds with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("cpu", Self::Cpu), ("alloc", Self::Alloc)];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Alloc => "alloc",
        }
    }

    /// Returns the unit of weights, for people.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "samples of CPU time",
            Self::Alloc => "allocations",
        }
    }
}

/// A running profiler.
pub struct Profiler(Sampler);

impl Profiler {
    /// Starts the profiler of this process. Call it before the process has a second thread.
    ///
    /// # Errors
    /// Fails in a program without the feature `profile`, and when the system refuses.
    pub fn start(profile: Profile) -> Result<Self, Failure> {
        Sampler::start(profile).map(Self)
    }

    /// Stops the profiler, and returns the profile in the folded form.
    ///
    /// # Errors
    /// Fails when the profiler has lost its samples.
    pub fn finish(self) -> Result<String, Failure> {
        self.0.finish()
    }
}

#[cfg(not(feature = "profile"))]
enum Sampler {}

#[cfg(not(feature = "profile"))]
impl Sampler {
    fn start(_profile: Profile) -> Result<Self, Failure> {
        Err(Failure::usage(WITHOUT))
    }

    fn finish(self) -> Result<String, Failure> {
        match self {}
    }
}

#[cfg(test)]
mod tests;
