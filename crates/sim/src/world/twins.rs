//! Runs of twins scenarios: partitions of replicas and their twins, view by view.

use super::reporting::{FrameReader, half_text};
use super::twins_schedule::TwinsSchedule;
use super::{Event, World};
use crate::arrival::{Arrival, TwinHalf};
use crate::frame::Content;
use crate::oracles::Failure;
use crate::queue::EventClass;
use crate::settings::{BadSettings, Settings};
use crate::trace::{Fingerprint, Trace, Transit, Who};
use crate::twins::Scenario;
use bytes::Bytes;
use quorate_consensus::To;
use quorate_types::{ReplicaId, Time, View};

impl World {
    /// Makes a world for a twins scenario.
    pub(crate) fn for_twins(settings: Settings, scenario: Scenario) -> Result<Self, BadSettings> {
        let schedule = TwinsSchedule::new(settings.entry.spec.first_view, scenario);
        Self::with_schedule(settings, Trace::default(), Some(Box::new(schedule)))
    }

    /// Returns the highest view of the scenario that any node is in, counted from 0.
    pub(crate) fn reached(&self) -> u64 {
        self.schedule.as_ref().map_or(0, |schedule| schedule.reached.since(schedule.first))
    }

    /// Returns the number of views of the scenario that some node was in.
    pub(crate) fn visited(&self) -> usize {
        self.schedule.as_ref().map_or(0, |schedule| schedule.begun.iter().flatten().count())
    }

    /// Ends the partitions.
    pub(crate) fn end_twins_schedule(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.is_over = true;
            self.trace.note(self.now, Who::World, "heals", &[], || "all nodes reach each other".to_owned());
        }
    }

    /// Runs until a moment, or while a condition holds.
    pub(crate) fn run_until_or_while(
        &mut self,
        end: Time,
        mut goes_on: impl FnMut(&Self) -> bool,
    ) -> Result<(), Failure> {
        while self.oracles.failure.is_none() && goes_on(self) {
            if self.queue.next_at().is_none_or(|at| at > end) {
                self.now = self.now.max(end);
                break;
            }
            self.step();
        }
        self.so_far()
    }

    /// Records the view of a node after its turn.
    pub(super) fn note_view(&mut self, at: Time, id: ReplicaId, half: TwinHalf) {
        let Self { schedule, slots, trace, .. } = self;
        let Some(schedule) = schedule else { return };
        let slot = slots.get(id.index());
        let slot = match half {
            TwinHalf::First => slot,
            TwinHalf::Second => slot.and_then(|slot| slot.second.as_deref()),
        };
        let running = slot.and_then(|slot| slot.running.as_ref());
        let (Some(running), Some(node)) = (running, schedule.node(id, half)) else { return };
        let known = running.host.replica().leader();
        if schedule.note(at, node, known) {
            let scenario = &schedule.scenario;
            trace.note(at, Who::World, "partition", &[&known.0.0.to_le_bytes()], || {
                format!("view {} begins with r{}: {scenario}", known.0, schedule.scenario.name(node))
            });
        }
    }

    /// Sends a frame to the nodes in the sender's part.
    pub(super) fn send_by_schedule(
        &mut self,
        at: Time,
        (from, half): (ReplicaId, TwinHalf),
        to: To,
        (frame_type, body): (u8, Bytes),
        content: &Content,
    ) {
        let Some(schedule) = &self.schedule else { return };
        let Some(node) = schedule.node(from, half) else { return };
        let current = schedule.views.get(node).copied().unwrap_or_default();
        let act = schedule.act(at, if content.view > View::ZERO { content.view } else { current });
        let receivers: Vec<(ReplicaId, bool, bool)> = self
            .receivers(from, to)
            .filter_map(|to| match schedule.receivers(act, (from, node), to) {
                (false, false) => None,
                (first, second) => Some((to, first, second)),
            })
            .collect();
        if receivers.is_empty() {
            return;
        }
        self.note_equivocation(from, content);
        let Self { trace, settings, cluster, schedule, network, rngs, queue, counters, .. } = self;
        let is_twin = |id: ReplicaId| {
            schedule.as_ref().is_some_and(|schedule| schedule.node(id, TwinHalf::Second).is_some())
        };
        trace.note(at, Who::Replica(from), "sends", &[&body], || {
            let mut details = FrameReader { settings, cluster }.frame(frame_type, &body).and(half_text(half));
            for (id, first, second) in receivers.iter().filter(|(id, ..)| is_twin(*id)) {
                for half in [first.then(|| format!("for r{id}")), second.then(|| format!("for r{id}'"))] {
                    details = details.and(&half.unwrap_or_default());
                }
            }
            let whom = receivers.iter().map(|(id, ..)| Who::Replica(*id));
            details.to(whom).transit(Transit::Leaves(Fingerprint::of(&body)))
        });
        let count = counters.sent.entry(content.kind).or_default();
        for (to, first, second) in receivers {
            *count = count.saturating_add(1);
            let body = body.clone();
            let arrival = match (first, second) {
                (true, false) if is_twin(to) => {
                    Arrival::Apart { from, frame_type, body, half: TwinHalf::First }
                }
                (false, _) => Arrival::Apart { from, frame_type, body, half: TwinHalf::Second },
                _ => Arrival::Frame { from, frame_type, body },
            };
            let arrives = network.map.get(from.index(), to.index()).arrival(&mut rngs.network, at);
            queue.push(arrives, EventClass::Arrival, Event::Arrives(to, arrival));
        }
    }
}
