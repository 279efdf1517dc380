//! The network alone, for programs that need nothing else of Quorate: messages to known peers through
//! channels, on a thread of its own.
//!
//! The links are those of a replica: lossless and ordered per peer and lane across reconnects, or both sides receive
//! [`Event::Lost`]. Every queue is bounded: [`Sender::send`] returns [`NotSent::Full`]. A slow receiver
//! slows the peers down, because the thread reads nothing more for it.
//!
//! ```
//! use quorate_net::mesh::{self, Event, Mesh, To};
//! use quorate_net::{LinkKey, NetConfig, PeerConfig, Security, reactor};
//! use quorate_types::wire::Lane;
//! use quorate_types::{FrameBody, ProtocolId, ReplicaId};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listeners = [reactor::bind("127.0.0.1:0".parse()?)?, reactor::bind("127.0.0.1:0".parse()?)?];
//! let key = |id: u8| LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[id; 32])); // Use real keys.
//! let mut peers = Vec::new();
//! for (id, listener) in (0..).zip(&listeners) {
//!     peers.push(PeerConfig { key: key(id)?.public(), address: listener.local_addr()? });
//! }
//! let mut open = Vec::new();
//! for (id, listener) in (0..).zip(listeners) {
//!     let identity = mesh::identity(ProtocolId::new("greetings"), ReplicaId(id));
//!     let security = Security::Tls(key(id.try_into()?)?);
//!     open.push(Mesh::<u64>::open(NetConfig::new(identity, peers.clone(), security, listener))?);
//! }
//! let (sender, _) = &open[0];
//! sender.send(To::All, Lane::Consensus, &42)?;
//! let (_, receiver) = &open[1];
//! while let Some(event) = receiver.recv() {
//!     if let Event::Message { message, .. } = event {
//!         assert_eq!(message, 42);
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns a thread and therefore a clock"
)]

use crate::lanes::{Loss, Oversize};
use crate::link::Identity;
use crate::reactor::{self, NetConfig, NetFault, Reactor, Who};
use bytes::Bytes;
use mio::Waker;
use quorate_types::wire::{Lane, frame};
use quorate_types::{
    ClusterId, DecodeError, Epoch, FrameBody, Incarnation, ProtocolId, ReplicaId, ReplicaSet, Time, Wire,
};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Messages that wait for the thread of the mesh, at most.
const SEND_QUEUE_MAX: usize = 4_096;
/// Bytes of these messages at most.
const SEND_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Events that wait for the receiver, at most.
const RECEIVE_QUEUE_MAX: usize = 4_096;
/// Bytes read in one pass.
const PASS_BYTES: usize = 1 << 20;

/// The receivers of a message. The sender itself is never one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// All other members.
    All,
    /// One member.
    One(ReplicaId),
    /// A set of members.
    Some(ReplicaSet),
}

/// A report of a mesh to its receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<M> {
    /// A message.
    Message {
        /// The sender.
        from: ReplicaId,
        /// The lane.
        lane: Lane,
        /// The message.
        message: M,
    },
    /// A peer is connected.
    Up(ReplicaId),
    /// A peer is no longer connected. Messages for it wait.
    Down(ReplicaId),
    /// Messages are lost for good: see [`reactor::Event::Lost`].
    Lost {
        /// The peer of the link.
        peer: ReplicaId,
        /// The lost messages, each a frame.
        loss: Loss,
    },
    /// A peer sent bytes that are no message.
    Malformed {
        /// The sender.
        from: ReplicaId,
        /// The error in them.
        why: DecodeError,
    },
    /// A connection was refused, by us or by the replica: see [`reactor::Event::Refused`] and
    /// [`reactor::Event::Closed`].
    Refused {
        /// The other side.
        who: Who,
        /// The reason.
        reason: String,
    },
}

/// The reason why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotSent {
    /// The queue of the mesh is full.
    #[error("the queue of the mesh is full")]
    Full,
    /// The mesh has ended.
    #[error("the mesh has ended")]
    Ended,
    /// The message exceeds the limit of its lane.
    #[error(transparent)]
    Oversize(#[from] Oversize),
}

/// A message on its way to the thread.
struct Order {
    to: To,
    lane: Lane,
    body: Bytes,
}

/// The state that the handles and the thread share.
struct Shared {
    waker: Arc<Waker>,
    /// Whether the thread sleeps, or is about to sleep after one more look at `orders`.
    asleep: AtomicBool,
    /// Messages that wait for the thread.
    orders: AtomicUsize,
    /// Bytes of these messages.
    bytes: AtomicUsize,
    /// Whether the receiver is gone.
    deaf: AtomicBool,
}

impl Shared {
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // A waker fails only when its poll is gone, and then there is no thread to wake.
            let _ = self.waker.wake();
        }
    }
}

/// Wakes the thread when it is dropped, so that the thread notices the end of the handle.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.asleep.store(false, Ordering::SeqCst);
        let _ = self.0.waker.wake();
    }
}

/// Opens meshes of messages `M`. See the module's example.
pub struct Mesh<M>(PhantomData<fn(M)>);

/// The sending end. Clones share one queue. The mesh ends when all senders or the receiver are gone.
pub struct Sender<M> {
    orders: mpsc::SyncSender<Order>,
    shared: Arc<Handle>,
    message: PhantomData<fn(M)>,
}

/// The receiving end.
pub struct Receiver<M> {
    events: mpsc::Receiver<Event<M>>,
    shared: Handle,
}

/// Returns the identity of a program in its own mesh; all peers must agree on `name`. The incarnation is the time of the
/// machine's clock, so that each start of the program is a new incarnation.
#[must_use]
pub fn identity(name: ProtocolId, me: ReplicaId) -> Identity {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    Identity {
        cluster: ClusterId::ZERO,
        epoch: Epoch(0),
        protocol: name,
        me,
        incarnation: Incarnation(nanos.max(1)),
    }
}

impl<M: Wire + Send + 'static> Mesh<M> {
    /// Starts the thread and begins to dial.
    ///
    /// # Errors
    /// As [`Reactor::new`], and when no thread can be started.
    pub fn open(config: NetConfig) -> Result<(Sender<M>, Receiver<M>), NetFault> {
        let reactor = Reactor::new(config)?;
        let shared = Arc::new(Shared {
            waker: reactor.waker(),
            asleep: AtomicBool::new(false),
            orders: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            deaf: AtomicBool::new(false),
        });
        let (orders, their_orders) = mpsc::sync_channel(SEND_QUEUE_MAX);
        let (their_events, events) = mpsc::sync_channel(RECEIVE_QUEUE_MAX);
        let thread = Thread {
            reactor,
            shared: shared.clone(),
            orders: their_orders,
            events: their_events,
            start: Instant::now(),
        };
        thread::Builder::new()
            .name("quorate-mesh".to_owned())
            .spawn(move || thread.run())
            .map_err(NetFault::Thread)?;
        let sender = Sender { orders, shared: Arc::new(Handle(shared.clone())), message: PhantomData };
        let receiver = Receiver { events, shared: Handle(shared) };
        Ok((sender, receiver))
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self { orders: self.orders.clone(), shared: self.shared.clone(), message: PhantomData }
    }
}

impl<M: Wire> Sender<M> {
    /// Queues a message. The message is encoded once for all its receivers, and waits for peers that are not connected.
    /// This call never blocks.
    ///
    /// # Errors
    /// Fails when it was not queued.
    pub fn send(&self, to: To, lane: Lane, message: &M) -> Result<(), NotSent> {
        let body = Bytes::from(message.to_bytes());
        let bytes = body.len();
        if bytes > crate::frame::body_bytes_max(lane) {
            return Err(Oversize { lane, bytes }.into());
        }
        let shared = &self.shared.0;
        // Counted before it is queued: the thread never takes more than was counted.
        let waiting = shared.bytes.fetch_add(bytes, Ordering::SeqCst);
        let sent = if waiting.saturating_add(bytes) > SEND_QUEUE_BYTES_MAX {
            Err(NotSent::Full)
        } else {
            shared.orders.fetch_add(1, Ordering::SeqCst);
            self.orders.try_send(Order { to, lane, body }).map_err(|error| {
                shared.orders.fetch_sub(1, Ordering::SeqCst);
                match error {
                    mpsc::TrySendError::Full(_) => NotSent::Full,
                    mpsc::TrySendError::Disconnected(_) => NotSent::Ended,
                }
            })
        };
        match sent {
            Ok(()) => shared.wake(),
            Err(_) => {
                shared.bytes.fetch_sub(bytes, Ordering::SeqCst);
            }
        }
        sent
    }
}

impl<M> Receiver<M> {
    /// Waits for the next event; `None` if the mesh has ended.
    #[must_use]
    pub fn recv(&self) -> Option<Event<M>> {
        self.events.recv().ok()
    }

    /// Waits for the next event; `None` if none arrives in time, or the mesh has ended.
    #[must_use]
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Event<M>> {
        self.events.recv_timeout(timeout).ok()
    }

    /// Returns the next event if one has arrived.
    #[must_use]
    pub fn try_recv(&self) -> Option<Event<M>> {
        self.events.try_recv().ok()
    }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        self.shared.0.deaf.store(true, Ordering::SeqCst);
    }
}

struct Thread<M> {
    reactor: Reactor,
    shared: Arc<Shared>,
    orders: mpsc::Receiver<Order>,
    events: mpsc::SyncSender<Event<M>>,
    start: Instant,
}

impl<M: Wire> Thread<M> {
    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn run(mut self) {
        while self.take_orders() && !self.shared.deaf.load(Ordering::SeqCst) {
            let now = self.now();
            if self.reactor.deadline().is_some_and(|due| due <= now) {
                self.reactor.tick(now);
            }
            self.reactor.flush(now);
            if let Err(fault) = self.sleep(now) {
                tracing::error!(%fault, "the mesh ends because its reactor fails");
                return;
            }
            let (now, events) = (self.now(), &self.events);
            self.reactor.read_ready(now, PASS_BYTES, &mut |event| {
                // Waits while the receiver is slow. The loop notices a receiver that is gone.
                if let Some(event) = translate(&event) {
                    let _ = events.send(event);
                }
            });
        }
        let now = self.now();
        self.reactor.flush(now);
    }

    fn sleep(&mut self, now: Time) -> Result<(), NetFault> {
        self.shared.asleep.store(true, Ordering::SeqCst);
        let timeout = if self.shared.orders.load(Ordering::SeqCst) > 0 {
            Some(Duration::ZERO)
        } else {
            self.reactor.deadline().map(|due| Duration::from_nanos(due.since(now)))
        };
        let waited = self.reactor.wait(timeout);
        self.shared.asleep.store(false, Ordering::SeqCst);
        waited
    }

    /// Queues the messages of the senders on their links; false if all senders are gone.
    fn take_orders(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(order) => {
                    self.shared.orders.fetch_sub(1, Ordering::SeqCst);
                    self.shared.bytes.fetch_sub(order.body.len(), Ordering::SeqCst);
                    if let Err(oversize) = self.send(&order) {
                        tracing::error!(%oversize, "a message exceeds the limit of its lane and was not sent");
                    }
                }
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn send(&mut self, order: &Order) -> Result<(), Oversize> {
        let body = FrameBody::from(order.body.clone());
        match order.to {
            To::All => self.reactor.broadcast(order.lane, frame::PROTOCOL, &body),
            To::One(id) => self.reactor.send_peer(id, order.lane, frame::PROTOCOL, body),
            To::Some(set) => set
                .iter()
                .try_for_each(|id| self.reactor.send_peer(id, order.lane, frame::PROTOCOL, body.clone())),
        }
    }
}

fn translate<M: Wire>(event: &reactor::Event<'_>) -> Option<Event<M>> {
    Some(match *event {
        reactor::Event::Peer { from, lane, body, .. } => match M::from_bytes(body) {
            Ok(message) => Event::Message { from, lane, message },
            Err(why) => Event::Malformed { from, why },
        },
        reactor::Event::PeerUp(id) => Event::Up(id),
        reactor::Event::PeerDown(id) => Event::Down(id),
        reactor::Event::Lost { peer, loss } => Event::Lost { peer, loss },
        reactor::Event::Refused { who, why } => Event::Refused { who, reason: why.reason().to_owned() },
        reactor::Event::Closed { by, reason } => {
            Event::Refused { who: Who::Replica(by), reason: reason.to_owned() }
        }
        reactor::Event::ClientUp { .. } | reactor::Event::ClientDown(_) | reactor::Event::Client { .. } => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests;
