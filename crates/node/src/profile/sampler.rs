//! The profilers of CPU time and of allocations behind one interface.

use super::folding::{Stack, folded};
use super::{Profile, allocations};
use crate::exit::Failure;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use rustix::process::{Signal, getpid, kill_process};

/// Samples in a second of CPU time. A prime number keeps no step with periodic work.
const FREQUENCY: i32 = 499;

/// A running profiler.
pub(super) enum Sampler {
    /// CPU time.
    Cpu(ProfilerGuard<'static>),
    /// Allocations.
    Alloc,
}

impl Sampler {
    pub(super) fn start(profile: Profile) -> Result<Self, Failure> {
        match profile {
            Profile::Alloc => {
                allocations::start();
                Ok(Self::Alloc)
            }
            Profile::Cpu => {
                let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY).build();
                let guard =
                    guard.map_err(|error| Failure::run(format!("cannot start the profiler: {error}")))?;
                // The first signal prepares the unwinder, which allocates. A signal of the timer may interrupt an
                // allocation, so the first one is sent from here.
                kill_process(getpid(), Signal::PROF)
                    .map_err(|error| Failure::run(format!("cannot start the profiler: {error}")))?;
                Ok(Self::Cpu(guard))
            }
        }
    }

    pub(super) fn finish(self) -> Result<String, Failure> {
        let stacks: Vec<Stack> = match self {
            Self::Alloc => return Ok(folded(&allocations::finish(), &allocations::OWN)),
            Self::Cpu(guard) => {
                let report = guard
                    .report()
                    .build_unresolved()
                    .map_err(|error| Failure::run(format!("the profile is lost: {error}")))?;
                drop(guard);
                report
                    .data
                    .iter()
                    .map(|(frames, count)| Stack {
                        places: frames.frames.iter().map(|frame| frame.ip).collect(),
                        weight: u64::try_from(*count).unwrap_or(0),
                    })
                    .collect()
            }
        };
        Ok(folded(&stacks, &[]))
    }
}
