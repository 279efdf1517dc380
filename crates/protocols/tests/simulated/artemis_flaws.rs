//! Flaws of Artemis (`artemis` §21) for the museum. Those of Apollo's folder serve as well.

use crate::artemis_run::{Message, Protocol, SILENCE_NS};
use crate::sync_exact_world::DELTA_NS;
use crate::sync_flaws::Moved;
use quorate_consensus::flawed::Flaw;
use quorate_consensus::{Seal, Timers};
use quorate_protocols::unique_chain::artemis::ArtemisMessage;
use quorate_protocols::unique_chain::{Timer, UniqueMessage};
use quorate_types::{BlockId, Time};
use std::collections::BTreeSet;

/// timer-without-S: the wait of a round does not cover the voter's own wait.
#[derive(Default)]
pub(crate) struct TimerWithoutS(Moved);

impl Flaw<Protocol> for TimerWithoutS {
    fn clock(&mut self, _: &Protocol, timer: Timer, now: Time) -> Time {
        self.0.clock(timer == Timer::Round, now)
    }

    fn sets_timers(&mut self, _: &Protocol, _: Time, timers: &mut Timers<Timer>) {
        self.0.follow(timers, Timer::Round, |at| at.minus(SILENCE_NS));
    }
}

/// Scenario 15, grace 0: the voter's own copy prolongs no wait.
#[derive(Default)]
pub(crate) struct NoGrace {
    /// The end of the wait, and the later one that the protocol has set.
    end: Option<Time>,
    meant: Option<Time>,
}

impl Flaw<Protocol> for NoGrace {
    fn clock(&mut self, _: &Protocol, timer: Timer, now: Time) -> Time {
        let meant = self.meant.take_if(|_| timer == Timer::Round);
        meant.map_or(now, |meant| now.max(meant))
    }

    fn sets_timers(&mut self, _: &Protocol, now: Time, timers: &mut Timers<Timer>) {
        let grace = now.plus(2 * DELTA_NS + DELTA_NS / 4);
        match (timers.get(Timer::Round), self.end) {
            (Some(at), Some(end)) if at == grace && end > now => {
                self.meant = Some(at);
                timers.set(Timer::Round, end);
            }
            (at, end) if at != end => (self.end, self.meant) = (at, None),
            _ => {}
        }
    }
}

/// fetched-then-direct, pitfall 6: the coordinator's own copy of a fetched block is ignored.
#[derive(Default)]
pub(crate) struct FetchedThenDirect(BTreeSet<BlockId>);

impl Flaw<Protocol> for FetchedThenDirect {
    fn hears(&mut self, _: &Protocol, message: Message, _: &Seal) -> Vec<Message> {
        match &message {
            UniqueMessage::Own(ArtemisMessage::Blocks { blocks }) => {
                self.0.extend(blocks.iter().map(|signed| signed.body.block.id()));
            }
            UniqueMessage::Own(ArtemisMessage::CBlock(block)) if self.0.contains(&block.block.id()) => {
                return Vec::new();
            }
            _ => {}
        }
        vec![message]
    }
}
