//! Replicas and their twins in parts, view by view: what a scenario of [`crate::twins`] does to a world.

use super::telling::{Eyes, voice_text};
use super::{Event, World};
use crate::byzantine::Voice;
use crate::frame::Content;
use crate::oracles::Failure;
use crate::queue::Class;
use crate::seat::Arrival;
use crate::settings::{BadSettings, Settings};
use crate::trace::{Passage, Print, Trace, Who};
use crate::twins::{ACT_NS, Scenario};
use bytes::Bytes;
use quorate_consensus::To;
use quorate_types::{ReplicaId, Time, View};

/// A view of the scenario that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Time,
    leader: ReplicaId,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Parts {
    scenario: Scenario,
    /// The view in which the protocol begins, and with it the scenario.
    first: View,
    /// By view of the scenario.
    begun: Vec<Option<Begun>>,
    /// The view that each node is in.
    views: Vec<View>,
    /// The highest view that any node is in.
    reached: View,
    /// Everything passes.
    is_over: bool,
}

/// What becomes of a frame on its way to one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// The partition of its view decides.
    Apart(usize),
    /// What this replica sends is lost.
    Without(ReplicaId),
    /// It passes.
    Over,
}

impl Parts {
    pub(crate) fn new(first: View, scenario: Scenario) -> Self {
        Self {
            first,
            begun: vec![None; scenario.rounds.len()],
            views: vec![first; scenario.nodes()],
            reached: first,
            is_over: scenario.rounds.is_empty(),
            scenario,
        }
    }

    /// The place of a view in the scenario.
    fn round(&self, view: View) -> usize {
        usize::try_from(view.since(self.first)).unwrap_or(usize::MAX)
    }

    fn node(&self, id: ReplicaId, voice: Voice) -> Option<usize> {
        match voice {
            Voice::First => Some(id.index()),
            Voice::Second => {
                let place = self.scenario.twins.iter().position(|twin| *twin == id)?;
                Some(self.scenario.n.saturating_add(place))
            }
        }
    }

    /// A node is in a view, and knows this leader of it. Whether it is the first there.
    fn note(&mut self, at: Time, node: usize, (view, leader): (View, ReplicaId)) -> bool {
        if let Some(known) = self.views.get_mut(node) {
            *known = view;
        }
        self.reached = self.reached.max(view);
        let round = self.round(view);
        let begun = self.begun.get_mut(round);
        match begun {
            Some(begun @ None) => {
                *begun = Some(Begun { at, leader });
                true
            }
            _ => false,
        }
    }

    /// What counts for frames of a view.
    fn act(&self, at: Time, view: View) -> Act {
        let index = self.round(view);
        match self.begun.get(index) {
            None => Act::Over,
            Some(_) if self.is_over => Act::Over,
            Some(Some(begun)) if at >= begun.at.plus(ACT_NS) => Act::Without(begun.leader),
            Some(_) => Act::Apart(index),
        }
    }

    /// Who of the two at a place hears what a node says now.
    fn ears(&self, act: Act, from: (ReplicaId, usize), to: ReplicaId) -> (bool, bool) {
        let hears = |node: Option<usize>| {
            node.is_some_and(|node| match act {
                Act::Over => true,
                Act::Without(leader) => leader != from.0,
                Act::Apart(view) => {
                    self.scenario.rounds.get(view).is_none_or(|round| round.partition.joins(from.1, node))
                }
            })
        };
        (hears(self.node(to, Voice::First)), hears(self.node(to, Voice::Second)))
    }
}

impl World {
    /// A world whose replicas and twins are in the parts that a scenario says.
    pub(crate) fn in_parts(settings: Settings, scenario: Scenario) -> Result<Self, BadSettings> {
        let parts = Parts::new(settings.entry.spec.first_view, scenario);
        Self::with_parts(settings, Trace::default(), Some(Box::new(parts)))
    }

    /// The highest view of the scenario, counted from 0, that any node is in.
    pub(crate) fn reached(&self) -> u64 {
        self.parts.as_ref().map_or(0, |parts| parts.reached.since(parts.first))
    }

    /// How many views of the scenario some node was in.
    pub(crate) fn visited(&self) -> usize {
        self.parts.as_ref().map_or(0, |parts| parts.begun.iter().flatten().count())
    }

    /// From now on everything passes.
    pub(crate) fn end_parts(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.is_over = true;
            self.trace.note(self.now, Who::World, "heals", &[], || "everybody reaches everybody".to_owned());
        }
    }

    /// Runs until a moment, or as long as something holds.
    pub(crate) fn run_as_long(
        &mut self,
        end: Time,
        mut goes_on: impl FnMut(&Self) -> bool,
    ) -> Result<(), Failure> {
        while self.failure.is_none() && goes_on(self) {
            if self.queue.next_at().is_none_or(|at| at > end) {
                self.now = self.now.max(end);
                break;
            }
            self.step();
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// A node has taken a turn: it may be in another view now.
    pub(super) fn note_view(&mut self, at: Time, id: ReplicaId, voice: Voice) {
        let Self { parts, seats, trace, .. } = self;
        let Some(parts) = parts else { return };
        let seat = seats.get(id.index());
        let seat = match voice {
            Voice::First => seat,
            Voice::Second => seat.and_then(|seat| seat.second.as_deref()),
        };
        let running = seat.and_then(|seat| seat.running.as_ref());
        let (Some(running), Some(node)) = (running, parts.node(id, voice)) else { return };
        let known = running.host.replica().leader();
        if parts.note(at, node, known) {
            let scenario = &parts.scenario;
            trace.note(at, Who::World, "parts", &[&known.0.0.to_le_bytes()], || {
                format!("view {} begins with r{}: {scenario}", known.0, parts.scenario.name(node))
            });
        }
    }

    /// One frame leaves for those that are in the sender's part.
    pub(super) fn send_in_parts(
        &mut self,
        at: Time,
        (from, voice): (ReplicaId, Voice),
        to: To,
        (frame_type, body): (u8, Bytes),
        content: &Content,
    ) {
        let Some(parts) = &self.parts else { return };
        let Some(node) = parts.node(from, voice) else { return };
        let current = parts.views.get(node).copied().unwrap_or_default();
        let act = parts.act(at, if content.view > View::ZERO { content.view } else { current });
        let ears: Vec<(ReplicaId, bool, bool)> = self
            .receivers(from, to)
            .filter_map(|to| match parts.ears(act, (from, node), to) {
                (false, false) => None,
                (first, second) => Some((to, first, second)),
            })
            .collect();
        if ears.is_empty() {
            return;
        }
        self.convict(from, content);
        let Self { trace, settings, cluster, parts, map, net_rng, queue, sent, .. } = self;
        let is_twin =
            |id: ReplicaId| parts.as_ref().is_some_and(|parts| parts.node(id, Voice::Second).is_some());
        trace.note(at, Who::Replica(from), "sends", &[&body], || {
            let mut tale = Eyes { settings, cluster }.frame(frame_type, &body).and(voice_text(voice));
            for (id, first, second) in ears.iter().filter(|(id, ..)| is_twin(*id)) {
                for half in [first.then(|| format!("for r{id}")), second.then(|| format!("for r{id}'"))] {
                    tale = tale.and(&half.unwrap_or_default());
                }
            }
            let whom = ears.iter().map(|(id, ..)| Who::Replica(*id));
            tale.to(whom).passage(Passage::Leaves(Print::of(&body)))
        });
        let count = sent.entry(content.kind).or_default();
        for (to, first, second) in ears {
            *count = count.saturating_add(1);
            let body = body.clone();
            let arrival = match (first, second) {
                (true, false) if is_twin(to) => Arrival::Apart { from, frame_type, body, ear: Voice::First },
                (false, _) => Arrival::Apart { from, frame_type, body, ear: Voice::Second },
                _ => Arrival::Frame { from, frame_type, body },
            };
            let arrives = map.get(from.index(), to.index()).arrival(net_rng, at);
            queue.push(arrives, Class::Arrival, Event::Arrives(to, arrival));
        }
    }
}
