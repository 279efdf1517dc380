//! The outbox: the guard, the marks, the messages that wait for the disk, and the own copies.
//!
//! * No promise leaves before its mark is durable. The records of a step and the guard entries of its messages are
//!   appended under one mark. A message that is held behind this mark leaves after `Durable(mark)`.
//! * No slot of a message that may be sent `once` ever has a second subject, across restarts.
//!
//! A protocol that knows ahead which slot it may fill *reserves* it: floors above the slot are appended with an
//! earlier promise. They bind after a restart alone. The message that fills the slot needs neither an entry nor a
//! sync: whatever it is, no other message ever fills that slot.

use crate::amnesia::{BACK_KIND, read_floors};
use crate::host_message::HostMessage;
use crate::output::{Output, OwnCopyTicket, Unsealed};
use crate::status::OutboxSize;
use quorate_consensus::{Auth, CHECKPOINT_KIND, Hold, Message, RecordKey, To};
use quorate_types::codec::Wire;
use quorate_types::wire::Lane;
use quorate_types::{Digest, Floors, Height, Kind, LogEntry, Mark, Slot, Statement, Time, View};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The time for which a message may wait for another's sync while no replica waits for it.
const LAZY_NS_MAX: u64 = 50_000_000;

/// The maximum of own copies on their way; the host has lost older ones, and they are dropped.
const COPIES_MAX: usize = 65_536;

/// The own copy that returns when an own message was queued.
#[derive(Debug)]
pub(crate) enum OwnCopy {
    /// A message of the protocol.
    Protocol(Box<dyn Message>),
    /// A message of the host.
    Host(HostMessage),
}

/// The reason for which a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsent {
    /// Its slot has another subject: the protocol would have equivocated.
    Contradiction(Slot, Digest),
    /// Its slot is below the floors.
    Dead(Slot),
    /// This replica has lost its disk, and makes no statement yet.
    Mute,
}

#[derive(Debug)]
struct HeldMessage {
    mark: Mark,
    /// The time since which it waits; `None` where no replica waits for it.
    since: Option<Time>,
    to: To,
    lane: Lane,
    frame: Unsealed,
}

impl HeldMessage {
    fn leave(self) -> Output {
        let Self { to, lane, frame, .. } = self;
        Output::Send { to, lane, frame }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    guard: BTreeMap<Slot, Digest>,
    floors: Floors,
    /// Floors that the log has and that bind after a restart alone, by kind, each with its mark.
    reserved: BTreeMap<Kind, (View, Mark)>,
    /// Records in their encoding of the log, which has them once more in each new segment.
    records: BTreeMap<RecordKey, Arc<[u8]>>,
    /// The mark of the last appended entry.
    appended: Mark,
    durable: Mark,
    /// The mark that the host was asked to sync.
    asked: Mark,
    held: VecDeque<HeldMessage>,
    /// A mark that is needed without haste, and the end of its wait.
    lazy: Option<(Mark, Time)>,
    copies: BTreeMap<OwnCopyTicket, OwnCopy>,
    /// Whether this replica makes no statement, because it has forgotten its promises.
    is_mute: bool,
    /// Floors of forgotten promises: no statement is made below them, not even one that may be sent again.
    forgotten: Floors,
    next_ticket: u64,
    open_step: bool,
}

impl Outbox {
    /// Restores the outbox from the log.
    pub(crate) fn restore(
        guard: BTreeMap<Slot, Digest>,
        floors: Floors,
        records: BTreeMap<RecordKey, Vec<u8>>,
    ) -> Self {
        let forgotten = records.get(&BACK).and_then(|bytes| read_floors(bytes)).unwrap_or_default();
        let records = records.into_iter().map(|(key, bytes)| (key, encode_record(key, &bytes))).collect();
        Self { guard, floors, records, forgotten, ..Self::default() }
    }

    /// Whether this replica has come back after the loss of an earlier disk.
    pub(crate) fn is_back(&self) -> bool {
        self.records.contains_key(&BACK)
    }

    /// Returns the floors of forgotten promises.
    pub(crate) fn forgotten(&self) -> &Floors {
        &self.forgotten
    }

    /// Makes this replica mute, or lets it speak.
    pub(crate) fn mute(&mut self, is_mute: bool) {
        self.is_mute = is_mute;
    }

    /// Lets a replica speak that has lost its disk. It makes no statement below these floors, for ever.
    pub(crate) fn abstain(&mut self, floors: Floors, out: &mut VecDeque<Output>) {
        self.is_mute = false;
        self.record(BACK, floors.to_bytes(), out);
        self.forgotten = floors;
    }

    /// Checks whether a statement may be among the forgotten promises.
    fn check_forgotten(&self, statement: &Statement) -> Result<(), Unsent> {
        let slot = statement.slot();
        match self.forgotten.is_dead(&slot) {
            _ if self.is_mute => Err(Unsent::Mute),
            true => Err(Unsent::Dead(slot)),
            false => Ok(()),
        }
    }

    /// Begins a new step: its entries have a mark of their own.
    pub(crate) fn begin_step(&mut self) {
        self.open_step = false;
    }

    fn mark(&mut self) -> Mark {
        if !self.open_step {
            self.open_step = true;
            self.appended = Mark(self.appended.0.saturating_add(1));
        }
        self.appended
    }

    /// Appends an entry under the mark of this step.
    pub(crate) fn persist(&mut self, entry: LogEntry, out: &mut VecDeque<Output>) {
        let mark = self.mark();
        out.push_back(Output::Persist { mark, entry });
    }

    /// Returns the mark of the last appended entry.
    pub(crate) fn appended(&self) -> Mark {
        self.appended
    }

    /// Whether a mark is durable.
    pub(crate) fn is_durable(&self, mark: Mark) -> bool {
        mark <= self.durable
    }

    /// Appends a record of the protocol; a later one with the same key replaces it.
    pub(crate) fn record(&mut self, key: RecordKey, bytes: Vec<u8>, out: &mut VecDeque<Output>) {
        let known = self.records.get(&key).and_then(|record| record.get(RECORD_KEY_BYTES..));
        if known == Some(&bytes) {
            return; // The log has this record already, or will have it before any later held message leaves.
        }
        let record = encode_record(key, &bytes);
        self.persist(LogEntry::Record(Arc::clone(&record)), out);
        self.records.insert(key, record);
    }

    /// Checks whether this statement may be made, and fills its slot if it is free.
    fn guard(&mut self, statement: &Statement, out: &mut VecDeque<Output>) -> Result<(), Unsent> {
        let slot = statement.slot();
        if self.floors.is_dead(&slot) {
            return Err(Unsent::Dead(slot));
        }
        match self.guard.get(&slot) {
            // An identical statement may always be repeated.
            Some(subject) if *subject == statement.subject => Ok(()),
            Some(subject) => Err(Unsent::Contradiction(slot, *subject)),
            None => {
                self.guard.insert(slot, statement.subject);
                self.persist(LogEntry::Guard(*statement), out);
                Ok(())
            }
        }
    }

    /// Whether the log lacks a statement that this replica has signed. Slots below the floors are no longer known, and neither
    /// are checkpoints that a lost disk had. The state decides these, so the replica signs no other ones.
    pub(crate) fn lacks(&self, statement: &Statement) -> bool {
        if self.is_back() && statement.kind == CHECKPOINT_KIND {
            return false;
        }
        let slot = statement.slot();
        let is_dead = self.floors.is_dead(&slot) || self.forgotten.is_dead(&slot);
        !is_dead && self.guard.get(&slot) != Some(&statement.subject)
    }

    /// Reserves slots: none of this kind in this view or below is filled after a restart.
    pub(crate) fn reserve(&mut self, kind: Kind, view: View, out: &mut VecDeque<Output>) {
        let floor = view.next();
        if self.reserved.get(&kind).is_some_and(|(known, _)| *known >= floor) {
            return;
        }
        let mark = self.mark();
        self.reserved.insert(kind, (floor, mark));
        out.push_back(Output::Persist { mark, entry: LogEntry::Floors(self.floors_in_log()) });
    }

    /// Returns the floors that bind after a restart.
    fn floors_in_log(&self) -> Floors {
        let mut floors = self.floors.clone();
        self.reserved.iter().for_each(|(kind, (view, _))| raise(&mut floors, *kind, *view));
        floors
    }

    /// Checks whether this statement may be made in a reserved slot. Returns the mark of the reservation; `None` where
    /// there is none.
    fn guard_reserved(&mut self, statement: &Statement) -> Option<Result<Mark, Unsent>> {
        let slot = statement.slot();
        let (_, mark) = *self.reserved.get(&slot.kind).filter(|(floor, _)| slot.view < *floor)?;
        if self.floors.is_dead(&slot) {
            return Some(Err(Unsent::Dead(slot)));
        }
        // The log needs no entry, because the reservation excludes any other statement in this slot.
        let subject = *self.guard.entry(slot).or_insert(statement.subject);
        Some(if subject == statement.subject { Ok(mark) } else { Err(Unsent::Contradiction(slot, subject)) })
    }

    /// Sends a message of the protocol: now, or when everything appended so far is durable.
    pub(crate) fn send(
        &mut self,
        now: Time,
        to: To,
        hold: Hold,
        message: Box<dyn Message>,
        out: &mut VecDeque<Output>,
    ) -> Result<(), Unsent> {
        let auth = message.auth();
        let statement = auth.statement();
        if let Some(statement) = &statement {
            self.check_forgotten(statement)?;
        }
        let mut reserved = None;
        if let Some(statement) = statement.filter(|_| message.once()) {
            // §4.2: a message that may be sent once is a promise, and a promise is held. Another choice is a bug of
            // the protocol that no peer can cause.
            assert!(hold != Hold::No, "{:?} may be said once and must be held", message.kind());
            if hold == Hold::Reserved {
                reserved = self.guard_reserved(&statement).transpose()?;
            }
            if reserved.is_none() {
                self.guard(&statement, out)?;
            }
        }
        let mut body = Vec::with_capacity(256);
        message.encode(&mut body);
        let sign = if auth.is_signed() { statement } else { None };
        let own = statement.map(|_| self.keep_copy(OwnCopy::Protocol(message)));
        let frame = Unsealed::Protocol { body, sign, own };
        let mark = reserved.unwrap_or(self.appended);
        let held = HeldMessage { mark, since: Some(now), to, lane: Lane::Consensus, frame };
        if reserved.is_some() {
            self.queue_behind(held, out);
        } else {
            self.queue(hold, held, out);
        }
        Ok(())
    }

    /// Sends a host message. A signed one is held without haste.
    pub(crate) fn send_host(
        &mut self,
        now: Time,
        to: To,
        message: HostMessage,
        out: &mut VecDeque<Output>,
    ) -> Result<(), Unsent> {
        let lane = message.lane();
        let Auth::Signed(statement) = message.auth() else {
            out.push_back(Output::Send {
                to,
                lane,
                frame: Unsealed::Host { message, sign: None, own: None },
            });
            return Ok(());
        };
        self.check_forgotten(&statement)?;
        // The mark of an open step may be durable already.
        self.begin_step();
        self.guard(&statement, out)?;
        let own = self.keep_copy(OwnCopy::Host(message.clone()));
        let frame = Unsealed::Host { message, sign: Some(statement), own: Some(own) };
        let mark = self.appended;
        if mark <= self.durable {
            out.push_back(Output::Send { to, lane, frame });
        } else {
            // No replica waits for a checkpoint: it leaves after the next sync, or after one of its own soon.
            self.held.push_back(HeldMessage { mark, since: None, to, lane, frame });
            self.wait_lazily(mark, now);
        }
        Ok(())
    }

    /// Sends a host message when everything appended so far is durable.
    pub(crate) fn send_host_held(
        &mut self,
        now: Time,
        to: To,
        message: HostMessage,
        out: &mut VecDeque<Output>,
    ) {
        let lane = message.lane();
        let frame = Unsealed::Host { message, sign: None, own: None };
        let held = HeldMessage { mark: self.appended, since: Some(now), to, lane, frame };
        self.queue(Hold::UntilDurable, held, out);
    }

    /// Asks for the durability of a mark, without haste.
    pub(crate) fn wait_lazily(&mut self, mark: Mark, now: Time) {
        let until = self.lazy.map_or(now.plus(LAZY_NS_MAX), |(_, until)| until);
        self.lazy = Some((mark, until));
    }

    fn keep_copy(&mut self, copy: OwnCopy) -> OwnCopyTicket {
        let ticket = OwnCopyTicket(self.next_ticket);
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.copies.insert(ticket, copy);
        while self.copies.len() > COPIES_MAX {
            self.copies.pop_first();
        }
        ticket
    }

    fn queue(&mut self, hold: Hold, held: HeldMessage, out: &mut VecDeque<Output>) {
        // Held messages keep their order: none overtakes another that still waits.
        if hold == Hold::No || (held.mark <= self.durable && self.held.is_empty()) {
            out.push_back(held.leave());
        } else {
            let mark = held.mark;
            self.held.push_back(held);
            self.ask(mark, out);
        }
    }

    /// Queues a message that waits for its mark alone: it overtakes those with later marks.
    fn queue_behind(&mut self, held: HeldMessage, out: &mut VecDeque<Output>) {
        let mark = held.mark;
        if mark <= self.durable {
            out.push_back(held.leave());
            return;
        }
        let at = self.held.partition_point(|other| other.mark <= mark);
        self.held.insert(at, held);
        self.ask(mark, out);
    }

    /// Drops held messages of this kind in this view. They never leave, and no own copy of them returns.
    pub(crate) fn withdraw(&mut self, kind: Kind, view: View) {
        let copies = &mut self.copies;
        self.held.retain(|held| {
            let Unsealed::Protocol { sign: Some(statement), own, .. } = &held.frame else { return true };
            let goes = (statement.kind, statement.view) == (kind, view);
            if goes && let Some(ticket) = own {
                copies.remove(ticket);
            }
            !goes
        });
    }

    /// Returns the age of the oldest message that waits for the disk and that a replica waits for; 0 where there is
    /// none.
    pub(crate) fn oldest_held_ns(&self, now: Time) -> u64 {
        // A reserved message stands before older ones, so the first need not be the oldest.
        let since = self.held.iter().filter_map(|held| held.since).min();
        since.map_or(0, |since| now.since(since))
    }

    /// Asks for a sync up to this mark now.
    pub(crate) fn ask(&mut self, mark: Mark, out: &mut VecDeque<Output>) {
        if mark > self.asked {
            self.asked = mark;
            out.push_back(Output::Sync(mark));
        }
    }

    /// Notes that everything up to `mark` is durable, and sends the messages that waited for it, in order.
    pub(crate) fn durable(&mut self, mark: Mark, out: &mut VecDeque<Output>) {
        self.durable = self.durable.max(mark);
        self.asked = self.asked.max(self.durable);
        if self.lazy.is_some_and(|(mark, _)| mark <= self.durable) {
            self.lazy = None;
        }
        while self.held.front().is_some_and(|held| held.mark <= self.durable) {
            out.extend(self.held.pop_front().map(HeldMessage::leave));
        }
    }

    /// Returns the time at which [`Outbox::tick`] has work to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.lazy.map(|(_, until)| until)
    }

    /// Asks for a sync where a wait without haste is over.
    pub(crate) fn tick(&mut self, now: Time, out: &mut VecDeque<Output>) {
        if let Some((mark, until)) = self.lazy
            && until <= now
        {
            self.lazy = None;
            self.ask(mark, out);
        }
    }

    /// Takes the own copy of a queued message; `None` for a message of an earlier incarnation.
    pub(crate) fn own_copy(&mut self, ticket: OwnCopyTicket) -> Option<OwnCopy> {
        self.copies.remove(&ticket)
    }

    /// Raises the floors, and forgets dead slots.
    pub(crate) fn raise_floors(&mut self, floors: Floors, out: &mut VecDeque<Output>) {
        let mut raised = self.floors.clone();
        raised.height = raised.height.max(floors.height);
        floors.views.into_iter().for_each(|(kind, view)| raise(&mut raised, kind, view));
        if raised == self.floors {
            return;
        }
        self.floors = raised;
        self.persist(LogEntry::Floors(self.floors_in_log()), out);
        let floors = &self.floors;
        self.guard.retain(|slot, _| !floors.is_dead(slot));
    }

    /// Forgets records of heights up to a stable checkpoint.
    pub(crate) fn forget_records(&mut self, stable: Height) {
        self.records.retain(|key, _| key.height == Height::ZERO || key.height > stable);
    }

    /// Appends everything that still binds once more, for a new segment of the log.
    pub(crate) fn write_base(&mut self, out: &mut VecDeque<Output>) {
        self.persist(LogEntry::Floors(self.floors_in_log()), out);
        let mark = self.mark();
        for (slot, subject) in &self.guard {
            let Slot { kind, view, height, scope } = *slot;
            let statement = Statement { kind, view, height, scope, subject: *subject };
            out.push_back(Output::Persist { mark, entry: LogEntry::Guard(statement) });
        }
        for record in self.records.values() {
            out.push_back(Output::Persist { mark, entry: LogEntry::Record(Arc::clone(record)) });
        }
    }

    /// Returns its size, for status.
    pub(crate) fn size(&self) -> OutboxSize {
        OutboxSize { guard_entries: self.guard.len(), records: self.records.len(), held: self.held.len() }
    }
}

fn raise(floors: &mut Floors, kind: Kind, view: View) {
    match floors.views.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, known)) => *known = view.max(*known),
        None => floors.views.push((kind, view)),
    }
}

/// The key of the record that this replica has come back after the loss of an earlier disk.
const BACK: RecordKey = RecordKey { kind: BACK_KIND, height: Height::ZERO, scope: Digest::ZERO };

/// Bytes of the key of a record in the log: kind, height, scope.
const RECORD_KEY_BYTES: usize = 1 + 8 + 32;

/// Encodes a record for the log: its key and its bytes.
pub(crate) fn encode_record(key: RecordKey, bytes: &[u8]) -> Arc<[u8]> {
    // The bytes are copied twice, and in pieces: a copy byte by byte into the final place is slower.
    let mut record = Vec::with_capacity(RECORD_KEY_BYTES.saturating_add(bytes.len()));
    record.push(key.kind);
    record.extend_from_slice(&key.height.0.to_le_bytes());
    record.extend_from_slice(&key.scope.0);
    record.extend_from_slice(bytes);
    record.into()
}

/// Decodes a record of the log; `None` for bytes that are too short.
pub(crate) fn decode_record(entry: &[u8]) -> Option<(RecordKey, Vec<u8>)> {
    let mut reader = quorate_types::Reader::new(entry);
    let kind = reader.u8().ok()?;
    let height = Height::decode(&mut reader).ok()?;
    let scope = Digest::decode(&mut reader).ok()?;
    Some((RecordKey { kind, height, scope }, reader.take_rest().to_vec()))
}
