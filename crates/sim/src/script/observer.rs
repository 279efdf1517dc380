//! Observation of a world for the trace of a script.

use super::rules::{RuleAction, Rules};
use super::script_trace::{ObservedFrame, ScriptTrace};
use crate::frame::Verdict;
use crate::secs;
use crate::world::World;
use bytes::Bytes;
use quorate_app::KvResult;
use quorate_history::{Op, OpId};
use quorate_types::codec::Wire as _;
use quorate_types::wire::FromReplica;
use quorate_types::{Height, ReplicaId, Time, View};
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The beginning of a script. By then replicas are connected and clients have their sessions.
pub(super) const ZERO: Time = Time(secs(1));

/// Traffic that the hooks of the world have recorded since the last look.
#[derive(Default, Debug)]
struct Observations {
    rules: Rules,
    frames: Vec<ObservedFrame>,
    replies: Vec<(ReplicaId, usize, Bytes)>,
    sent: BTreeMap<String, u64>,
}

/// A replica at the last look.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct ObservedReplica {
    is_running: bool,
    turns: u64,
    view: View,
    normal: bool,
    executed: Height,
    stable: Height,
}

impl ObservedReplica {
    fn of(world: &World, id: ReplicaId) -> Self {
        let turns = world.turns(id);
        match world.status(id) {
            Some(status) => Self {
                is_running: true,
                turns,
                view: status.view,
                normal: status.normal,
                executed: world.executed(id),
                stable: status.stable,
            },
            None => Self { turns, ..Self::default() },
        }
    }
}

/// The observer of a world.
pub(super) struct Observer {
    seen: Rc<RefCell<Observations>>,
    pub(super) trace: ScriptTrace,
    replicas: Vec<ObservedReplica>,
    rejected: BTreeMap<&'static str, u64>,
    /// Operations without an answer.
    open: Vec<OpId>,
    failed: u64,
    repeats: Vec<u64>,
    held: Vec<ObservedFrame>,
}

/// Records all traffic from now on, and applies the rules to it.
fn watch(world: &mut World, seen: &Rc<RefCell<Observations>>) {
    let (frames, replies) = (Rc::clone(seen), Rc::clone(seen));
    world.hook(move |at, frame| {
        let mut seen = frames.borrow_mut();
        let act = seen.rules.judge(frame);
        let count = seen.sent.entry(frame.content.kind.to_string()).or_default();
        *count = count.saturating_add(1);
        let next = ObservedFrame::of(at, frame, act);
        if !seen.frames.last_mut().is_some_and(|last| last.joins(&next)) {
            seen.frames.push(next);
        }
        act.map_or(Verdict::Pass, Verdict::from)
    });
    world.hook_replies(move |from, client, message| {
        replies.borrow_mut().replies.push((from, client, message.clone()));
        Some(message)
    });
}

impl Observer {
    /// Begins to observe a world.
    pub(super) fn open(world: &mut World) -> Self {
        let settings = world.settings();
        let (n, clients) = (settings.n, settings.clients);
        let no_block = settings.entry.figures.map(|figures| figures.not_counted).unwrap_or_default();
        let seen = Rc::new(RefCell::new(Observations::default()));
        watch(world, &seen);
        let mut observer = Self {
            seen,
            trace: ScriptTrace::new(n, ZERO, no_block),
            replicas: world.replicas().map(|id| ObservedReplica::of(world, id)).collect(),
            rejected: world.rejected().clone(),
            open: Vec::new(),
            failed: 0,
            repeats: vec![0; clients],
            held: Vec::new(),
        };
        observer.introduce(world.replicas());
        observer
    }

    /// Returns the rules about traffic.
    pub(super) fn rules(&self) -> RefMut<'_, Rules> {
        RefMut::map(self.seen.borrow_mut(), |seen| &mut seen.rules)
    }

    /// Returns the number of messages of a kind that replicas have sent, lost ones included.
    pub(super) fn sent(&self, kind: &str) -> u64 {
        self.seen.borrow().sent.get(kind).copied().unwrap_or_default()
    }

    /// Writes the initial position of all replicas.
    fn introduce(&mut self, ids: impl Iterator<Item = ReplicaId>) {
        let place = |known: &ObservedReplica| format!("v{} h{}", known.view, known.executed);
        let first = self.replicas.first().map(place).unwrap_or_default();
        if self.replicas.iter().all(|known| place(known) == first) {
            return self.trace.happens(ZERO, "all", "stand", &first);
        }
        for (id, known) in ids.zip(self.replicas.clone()) {
            self.trace.happens(ZERO, &format!("r{id}"), "stands", &place(&known));
        }
    }

    pub(super) fn ask(&mut self, world: &mut World, client: usize, op: Op) {
        self.trace.happens(world.now(), &format!("c{client}"), "asks", &operation_text(&op));
        self.open.extend(world.submit(client, &[op]));
    }

    /// Writes the held messages, which leave now.
    pub(super) fn release(&mut self, now: Time) {
        for seen in std::mem::take(&mut self.held) {
            self.trace.sends(&seen.released(now));
        }
    }

    /// Writes the events since the last look.
    pub(super) fn look(&mut self, world: &World) {
        let now = world.now();
        let mut turned = Vec::new();
        for id in world.replicas() {
            let Some(before) = self.replicas.get(id.index()).copied() else { continue };
            if before.turns == world.turns(id) && before.is_running == world.is_running(id) {
                continue;
            }
            if before.turns != world.turns(id) {
                turned.push(id);
            }
            let after = ObservedReplica::of(world, id);
            self.compare(now, id, &before, &after);
            if let Some(known) = self.replicas.get_mut(id.index()) {
                *known = after;
            }
        }
        self.refusals(now, world, &turned);
        let (frames, replies) = {
            let mut seen = self.seen.borrow_mut();
            (std::mem::take(&mut seen.frames), std::mem::take(&mut seen.replies))
        };
        for frame in frames {
            self.trace.sends(&frame);
            if frame.act == Some(RuleAction::Hold) {
                self.held.push(frame);
            }
        }
        for (from, client, message) in replies {
            self.trace.replies(now, from, client, &reply(&message));
        }
        self.clients(now, world);
    }

    /// Writes the changes of a replica.
    fn compare(&mut self, now: Time, id: ReplicaId, before: &ObservedReplica, after: &ObservedReplica) {
        let who = format!("r{id}");
        let mut tell = |what, details: String| self.trace.happens(now, &who, what, &details);
        if !after.is_running {
            return tell("loses power", String::new());
        }
        if !before.is_running {
            return tell("starts", format!("v{} h{}", after.view, after.executed));
        }
        if after.view != before.view && !after.normal {
            tell("waits for", format!("v{}", after.view));
        }
        if after.normal && (after.view != before.view || !before.normal) {
            tell("enters", format!("v{}", after.view));
        }
        if after.executed > before.executed {
            let first = before.executed.next();
            let range = if first == after.executed {
                format!("h{first}")
            } else {
                format!("h{first} to h{}", after.executed)
            };
            tell("executes", range);
        }
        if after.stable > before.stable {
            tell("stable", format!("h{}", after.stable));
        }
    }

    /// Writes refused messages. At most one replica takes a turn at a moment, so it has refused them.
    fn refusals(&mut self, now: Time, world: &World, turned: &[ReplicaId]) {
        if world.rejected() == &self.rejected {
            return;
        }
        let who = turned.first().map_or("?".to_owned(), |id| format!("r{id}"));
        for (reason, count) in world.rejected() {
            let more = count.saturating_sub(self.rejected.get(reason).copied().unwrap_or_default());
            match more {
                0 => {}
                1 => self.trace.happens(now, &who, "refuses", reason),
                more => self.trace.happens(now, &who, "refuses", &format!("{reason} ({more} times)")),
            }
        }
        self.rejected.clone_from(world.rejected());
    }

    fn clients(&mut self, now: Time, world: &World) {
        for (client, known) in self.repeats.iter_mut().enumerate() {
            let repeats = world.client_counters(client).repeats;
            if repeats > *known {
                self.trace.happens(now, &format!("c{client}"), "asks again", "");
            }
            *known = repeats;
        }
        let Self { open, trace, .. } = self;
        open.retain(|id| {
            let record = world.history().get(*id);
            let Some((record, result)) = record.and_then(|record| Some((record, record.result.as_ref()?)))
            else {
                return true;
            };
            let details = format!("{}: {}", operation_text(&record.op), outcome(result));
            trace.happens(now, &format!("c{}", record.client), "believes", &details);
            false
        });
        if world.failed_ops() > self.failed {
            self.failed = world.failed_ops();
            self.trace.happens(now, "c", "gives up", "an operation");
        }
    }
}

/// Formats an operation as a script has it.
fn operation_text(op: &Op) -> String {
    match op {
        Op::Put { key, value } => format!("put {key} {value}"),
        Op::Get { key } => format!("get {key}"),
        Op::Delete { key } => format!("delete {key}"),
        Op::Increment { key, by } => format!("add {key} {by}"),
        Op::Cas { key, expect, value } => {
            format!("cas {key} {} {value}", expect.as_deref().unwrap_or("(nothing)"))
        }
    }
}

fn outcome(result: &KvResult) -> String {
    match result {
        KvResult::Done => "done".to_owned(),
        KvResult::Value(value) => String::from_utf8_lossy(value).into_owned(),
        KvResult::Absent => "absent".to_owned(),
        KvResult::Mismatch => "another value".to_owned(),
        KvResult::Number(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn reply(message: &Bytes) -> String {
    match FromReplica::from_bytes(message) {
        Ok(FromReplica::Reply(_, reply)) => format!("{:<16} v{}", "reply", reply.view),
        Ok(FromReplica::Refused { why, .. }) => format!("{:<16} {why:?}", "refusal"),
        _ => "something else".to_owned(),
    }
}
