//! A client for programs in tokio: the same core, one task that owns it, and one task for each
//! connection. No other library code of the project has async functions.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the async driver: sockets and clock are the runtime's"
)]

#[cfg(test)]
mod tests;

use crate::cluster::{AskAgain, ClusterInfo};
use crate::conversation::{Conversation, Dial};
use crate::core::{Answer, Core, Event, Failure, Fate, LinkState, Output, Settings, Tried};
use crate::driver::{
    ClientError, NO_HELLO, Options, Ordered, RECONNECT_NS, RECONNECT_NS_MAX, random_u64, troubles,
};
use bytes::Bytes;
use quorate_crypto::SigningKey;
use quorate_types::limits::HANDSHAKE_NS_MAX;
use quorate_types::rng::Rng;
use quorate_types::wire::FromReplica;
use quorate_types::{ClientId, ReplicaId, Time};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Calls and messages that wait for the task of the core, at most. A sender beyond the limit waits.
const INCOMING_MAX: usize = 1_024;
/// Frames that wait for a connection, at most. The core sends dropped frames again.
const FRAMES_MAX: usize = 4_096;
/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 << 10;

type Reply = oneshot::Sender<Result<Vec<u8>, ClientError>>;
type OrderReply = oneshot::Sender<Result<Ordered, ClientError>>;
/// The time that a late call waits for the description of its attempts.
const DESCRIPTION_PATIENCE: Duration = Duration::from_secs(1);

/// The problem of each connection.
type Troubles = Arc<Mutex<Vec<Option<String>>>>;

/// A client of a cluster. Clones share its session and its connections; the tasks end when the last clone
/// is dropped.
#[derive(Clone)]
pub struct AsyncClient {
    incoming: mpsc::Sender<Incoming>,
    timeout: Duration,
    troubles: Troubles,
    _task: Arc<AbortOnDrop>,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        // The connections end when their queues of frames are dropped with the task.
        self.0.abort();
    }
}

/// An input of the task that owns the core.
enum Incoming {
    Call(Vec<u8>, Reply),
    /// Asks for the order of an operation.
    Order(Vec<u8>, OrderReply),
    /// Asks for the attempts of calls whose callers no longer wait.
    Late(oneshot::Sender<Tried>),
    Greeted(ReplicaId),
    Gone(ReplicaId),
    Message(ReplicaId, FromReplica),
}

impl AsyncClient {
    /// Connects to a cluster and opens a session. Must be called inside a tokio runtime with I/O and time.
    ///
    /// This function may be cancelled: the tasks end, and an unused session may stay in the cluster.
    ///
    /// # Errors
    /// Fails when the key is not registered, the cluster gives no answer in time, or the system of this machine fails.
    pub async fn connect(
        cluster: ClusterInfo,
        key: SigningKey,
        options: Options,
    ) -> Result<Self, ClientError> {
        let (incoming, receiver) = mpsc::channel(INCOMING_MAX);
        let (opened, session) = oneshot::channel();
        let troubles = Arc::new(Mutex::new(vec![Some(NO_HELLO.to_owned()); cluster.n()]));
        let settings = options.settings(&cluster);
        let client = key.public();
        let cluster = Arc::new(cluster);
        let mut frames = Vec::with_capacity(cluster.n());
        for id in cluster.ids() {
            let (sender, receiver) = mpsc::channel(FRAMES_MAX);
            let connection = ReplicaConnection {
                dial: Dial::new(&cluster, id)?,
                id,
                client,
                cluster: cluster.clone(),
                frames: receiver,
                incoming: incoming.downgrade(),
                troubles: troubles.clone(),
            };
            tokio::spawn(connection.keep_up(Rng::new(random_u64()?)));
            frames.push(sender);
        }
        let driver = Driver::new(settings, key, frames, opened, &cluster)?;
        let client = Self {
            incoming,
            timeout: options.timeout,
            troubles,
            _task: Arc::new(AbortOnDrop(tokio::spawn(driver.run(receiver)))),
        };
        client.in_time(session, Fate::NotExecuted).await?;
        Ok(client)
    }

    /// Executes one operation and returns its result. Calls that run at the same time share bundles.
    ///
    /// This function may be cancelled. Before the operation reaches the task nothing happens; after that the operation is
    /// executed, once at most, and its result is dropped.
    ///
    /// # Errors
    /// [`ClientError::Failed`] contains the known fate of the operation. After [`ClientError::Timeout`] it
    /// may still be executed, once at most.
    pub async fn call(&self, op: impl Into<Vec<u8>>) -> Result<Vec<u8>, ClientError> {
        let (reply, result) = oneshot::channel();
        self.hand_over(Incoming::Call(op.into(), reply), result).await
    }

    /// Executes one operation, and returns its place in the cluster's order instead of its result, as
    /// [`Client::order`](crate::Client::order) does. The operation has a bundle of its own.
    ///
    /// This function may be cancelled, with the effect of a cancelled [`AsyncClient::call`].
    ///
    /// # Errors
    /// As [`Client::order`](crate::Client::order).
    pub async fn order(&self, op: impl Into<Vec<u8>>) -> Result<Ordered, ClientError> {
        let (reply, result) = oneshot::channel();
        self.hand_over(Incoming::Order(op.into(), reply), result).await
    }

    /// Hands a call to the task, and waits for its answer.
    async fn hand_over<T>(
        &self,
        call: Incoming,
        result: oneshot::Receiver<Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match timeout(self.timeout, self.incoming.send(call)).await {
            // A bundle that has not left may leave later: calls share bundles.
            Ok(Ok(())) => self.in_time(result, Fate::Unknown).await,
            Ok(Err(_)) => Err(ClientError::Closed),
            Err(_) => Err(self.late("too many calls wait before this one".to_owned(), Fate::NotExecuted)),
        }
    }

    async fn in_time<T>(
        &self,
        mut answer: oneshot::Receiver<Result<T, ClientError>>,
        fate: Fate,
    ) -> Result<T, ClientError> {
        match timeout(self.timeout, &mut answer).await {
            Ok(Ok(result)) => return result,
            Ok(Err(_)) => return Err(ClientError::Closed),
            Err(_) => {}
        }
        // The closed channel shows the task which calls are late.
        answer.close();
        if let Ok(result) = answer.try_recv() {
            return result;
        }
        let (ask, description) = oneshot::channel();
        let described = timeout(DESCRIPTION_PATIENCE, async {
            self.incoming.send(Incoming::Late(ask)).await.ok()?;
            description.await.ok()
        });
        let text = described.await.ok().flatten().map(|tried| tried.text);
        Err(self.late(text.unwrap_or_else(|| "the client is too busy to describe it".to_owned()), fate))
    }

    fn late(&self, tried: String, fate: Fate) -> ClientError {
        let known = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = (0..u16::MAX).map(ReplicaId);
        let trouble = troubles(ids.zip(known.iter().map(Option::as_deref)));
        ClientError::Timeout { waited: self.timeout, tried, fate, trouble }
    }
}

/// A call without an answer.
struct WaitingCall {
    /// The operation, if it may be repeated alone; empty otherwise.
    op: Vec<u8>,
    reply: Reply,
}

/// The task that owns the core.
struct Driver {
    core: Core,
    start: Instant,
    frames: Vec<mpsc::Sender<Bytes>>,
    /// The waiting calls of each bundle, in the order of its operations.
    waiting: BTreeMap<u64, Vec<WaitingCall>>,
    /// The waiting calls for order, by bundle.
    ordering: BTreeMap<u64, OrderReply>,
    ask_again: Option<AskAgain>,
    opened: Option<oneshot::Sender<Result<(), ClientError>>>,
    has_session: bool,
}

impl Driver {
    fn new(
        settings: Settings,
        key: SigningKey,
        frames: Vec<mpsc::Sender<Bytes>>,
        opened: oneshot::Sender<Result<(), ClientError>>,
        cluster: &ClusterInfo,
    ) -> Result<Self, ClientError> {
        let mut core = Core::new(settings, key).with_orders(cluster.order_verifier());
        core.open(Time::ZERO, random_u64()?);
        Ok(Self {
            core,
            start: Instant::now(),
            frames,
            waiting: BTreeMap::new(),
            ordering: BTreeMap::new(),
            ask_again: cluster.ask_again,
            opened: Some(opened),
            has_session: true,
        })
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<Incoming>) {
        loop {
            self.settle();
            let first = match self.core.deadline() {
                Some(deadline) => {
                    let due = self.start + Duration::from_nanos(deadline.0);
                    timeout_at(due, incoming.recv()).await
                }
                None => Ok(incoming.recv().await),
            };
            let now = self.now();
            match first {
                Ok(Some(first)) => {
                    self.take(now, first);
                    // Inputs that have arrived meanwhile follow, so that calls that waited together share a bundle.
                    while let Ok(more) = incoming.try_recv() {
                        self.take(now, more);
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
            self.core.tick(now);
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn take(&mut self, now: Time, incoming: Incoming) {
        match incoming {
            // The caller was dropped before its call was taken.
            Incoming::Call(_, reply) if reply.is_closed() => {}
            Incoming::Call(op, reply) => {
                if !self.has_session {
                    self.open(now);
                }
                match self.core.submit(now, &op) {
                    Ok(ticket) => {
                        let op = if self.ask_again.is_some() { op } else { Vec::new() };
                        self.waiting.entry(ticket.bundle).or_default().push(WaitingCall { op, reply });
                    }
                    Err(why) => answer(reply, Err(why.into())),
                }
            }
            Incoming::Order(_, reply) if reply.is_closed() => {}
            Incoming::Order(op, reply) => {
                if !self.has_session {
                    self.open(now);
                }
                match self.core.order(now, [op.as_slice()]) {
                    Ok(ticket) => drop(self.ordering.insert(ticket.bundle, reply)),
                    Err(why) => drop(reply.send(Err(why.into()))),
                }
            }
            Incoming::Late(description) => {
                let is_late = |bundle| {
                    let calls = self.waiting.get(&bundle).into_iter().flatten();
                    calls.into_iter().any(|call| call.reply.is_closed())
                        || self.ordering.get(&bundle).is_some_and(OrderReply::is_closed)
                };
                let _ = description.send(self.core.tried(&is_late));
            }
            Incoming::Greeted(id) => self.core.link(now, id, LinkState::Up),
            Incoming::Gone(id) => self.core.link(now, id, LinkState::Down),
            Incoming::Message(from, message) => self.core.handle(now, from, message),
        }
    }

    fn open(&mut self, now: Time) {
        // Without random bytes there is no session; calls then time out.
        if let Ok(nonce) = random_u64() {
            self.core.open(now, nonce);
            self.has_session = true;
        }
    }

    /// Moves the outputs of the core to the connections and to the callers.
    fn settle(&mut self) {
        while let Some(output) = self.core.poll() {
            match output {
                Output::Send { to, frame } => {
                    if let Some(frames) = self.frames.get(to.index()) {
                        // The queue may be full or closed: the core sends the frame again.
                        let _ = frames.try_send(frame);
                    }
                }
                Output::Event(event) => self.on_event(event),
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Opened(_) => {
                if let Some(opened) = self.opened.take() {
                    let _ = opened.send(Ok(()));
                }
            }
            Event::OpenFailed(why) => {
                self.has_session = false;
                if let Some(opened) = self.opened.take() {
                    let _ = opened.send(Err(why.into()));
                }
                self.core.abandon(self.now());
            }
            Event::SessionLost => self.open(self.now()),
            Event::Done { bundle, answer: Answer::Results(results), .. } => {
                let calls = self.waiting.remove(&bundle).unwrap_or_default();
                let is_shared = calls.len() > 1;
                for (call, result) in calls.into_iter().zip(results.iter().into_iter().flatten()) {
                    let is_again = is_shared
                        && self
                            .ask_again
                            .is_some_and(|rule| (rule.0)(&call.op, result, &mut std::iter::empty()));
                    match is_again.then(|| self.core.submit_bundle(self.now(), [call.op.as_slice()])) {
                        Some(Ok(ticket)) => self.waiting.entry(ticket.bundle).or_default().push(call),
                        Some(Err(_)) | None => answer(call.reply, Ok(result.to_vec())),
                    }
                }
            }
            Event::Done { bundle, .. } => self.fail(bundle, Failure::Impossible),
            Event::Ordered { bundle, position, by, .. } => {
                if let Some(reply) = self.ordering.remove(&bundle) {
                    let _ = reply.send(Ok(Ordered { position, by }));
                }
            }
            Event::Failed { bundle, why, .. } => self.fail(bundle, why),
        }
    }

    fn fail(&mut self, bundle: u64, why: Failure) {
        if let Some(reply) = self.ordering.remove(&bundle) {
            let _ = reply.send(Err(why.into()));
        }
        for call in self.waiting.remove(&bundle).unwrap_or_default() {
            answer(call.reply, Err(why.into()));
        }
    }
}

/// Answers a caller, which may no longer wait.
fn answer(reply: Reply, result: Result<Vec<u8>, ClientError>) {
    let _ = reply.send(result);
}

/// The connection to one replica, made again whenever it breaks.
struct ReplicaConnection {
    dial: Dial,
    id: ReplicaId,
    client: ClientId,
    cluster: Arc<ClusterInfo>,
    frames: mpsc::Receiver<Bytes>,
    incoming: mpsc::WeakSender<Incoming>,
    troubles: Troubles,
}

/// The reason why a connection's task ends: the client was dropped.
struct ClientDropped;

impl ReplicaConnection {
    async fn keep_up(mut self, mut rng: Rng) {
        let mut pause = RECONNECT_NS;
        loop {
            let greeted = match self.converse().await {
                Ok((greeted, why)) => {
                    self.trouble(Some(why));
                    greeted
                }
                Err(ClientDropped) => return,
            };
            if self.report(Incoming::Gone(self.id)).await.is_err() {
                return;
            }
            if greeted {
                pause = RECONNECT_NS;
            }
            sleep(Duration::from_nanos(pause / 2 + rng.below(pause / 2))).await;
            pause = pause.saturating_mul(2).min(RECONNECT_NS_MAX);
        }
    }

    fn trouble(&self, trouble: Option<String>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = troubles.get_mut(self.id.index()) {
            *place = trouble;
        }
    }

    async fn report(&self, incoming: Incoming) -> Result<(), ClientDropped> {
        let sender = self.incoming.upgrade().ok_or(ClientDropped)?;
        sender.send(incoming).await.map_err(|_| ClientDropped)
    }

    /// Runs one connection to its end. Returns whether the replica's hello arrived, and the reason of the end.
    async fn converse(&mut self) -> Result<(bool, String), ClientDropped> {
        let patience = Instant::now() + Duration::from_nanos(HANDSHAKE_NS_MAX);
        let Some(replica) = self.cluster.replicas.get(self.id.index()) else {
            return Err(ClientDropped);
        };
        let socket = match timeout_at(patience, TcpStream::connect(replica.address)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Ok((false, error.to_string())),
            Err(_) => return Ok((false, "no connection in time".to_owned())),
        };
        // Some systems refuse it; without it only latency suffers.
        let _ = socket.set_nodelay(true);
        let mut conversation = match Conversation::new(&self.dial, &self.cluster, vec![self.client]) {
            Ok(conversation) => conversation,
            Err(why) => return Ok((false, why.reason().to_owned())),
        };
        let mut buffer = vec![0; READ_BYTES];
        let mut inbox = Vec::new();
        loop {
            let was_greeted = conversation.is_greeted();
            while was_greeted && let Ok(frame) = self.frames.try_recv() {
                conversation.queue(&frame);
            }
            if let Err(error) = conversation.write(&mut NowOrNever(&socket)) {
                return Ok((was_greeted, error.to_string()));
            }
            let woke = self.woken(&socket, &conversation);
            let readable = if was_greeted {
                woke.await
            } else {
                match timeout_at(patience, woke).await {
                    Ok(woke) => woke,
                    Err(_) => return Ok((false, "no hello in time".to_owned())),
                }
            };
            let broken = match readable {
                Wake::Frame(frame) => {
                    conversation.queue(&frame);
                    continue;
                }
                Wake::ClientDropped => return Err(ClientDropped),
                Wake::Writable => continue,
                Wake::Readable => read(&socket, &mut conversation, &mut buffer, &mut inbox),
            };
            if conversation.is_greeted() && !was_greeted {
                // Frames of an earlier connection are dropped: the core sends the important ones again.
                while self.frames.try_recv().is_ok() {}
                self.trouble(None);
                self.report(Incoming::Greeted(self.id)).await?;
            }
            for message in inbox.drain(..) {
                self.report(Incoming::Message(self.id, message)).await?;
            }
            if let Err(why) = broken {
                return Ok((conversation.is_greeted(), why));
            }
        }
    }

    /// Waits until the socket is ready, a frame arrives, or the client is dropped.
    async fn woken(&mut self, socket: &TcpStream, conversation: &Conversation) -> Wake {
        poll_fn(|context| {
            if socket.poll_read_ready(context).is_ready() {
                return Poll::Ready(Wake::Readable);
            }
            if conversation.wants_write() && socket.poll_write_ready(context).is_ready() {
                return Poll::Ready(Wake::Writable);
            }
            match self.frames.poll_recv(context) {
                Poll::Ready(Some(frame)) => Poll::Ready(Wake::Frame(frame)),
                Poll::Ready(None) => Poll::Ready(Wake::ClientDropped),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// The reason of a wake-up.
enum Wake {
    Readable,
    Writable,
    Frame(Bytes),
    ClientDropped,
}

/// Reads the socket once and appends the messages to `inbox`.
fn read(
    socket: &TcpStream,
    conversation: &mut Conversation,
    buffer: &mut [u8],
    inbox: &mut Vec<FromReplica>,
) -> Result<(), String> {
    match socket.try_read(buffer) {
        Ok(0) => Err("closed by the other side".to_owned()),
        Ok(count) => {
            let bytes = buffer.get(..count).unwrap_or_default();
            let received = conversation.receive(bytes, &mut |_, message| inbox.push(message));
            received.map_err(|why| why.to_string())
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A writer that takes as many bytes as the socket accepts now.
struct NowOrNever<'a>(&'a TcpStream);

impl Write for NowOrNever<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }
    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
