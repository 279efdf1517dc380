//! Connections of clients, and the clients whose replies each connection receives.

use super::rejects::Origin;
use quorate_replica::ConnId;
use quorate_types::limits::{
    ATTACHED_MAX, ATTACHED_PER_CONNECTION_MAX, CONNECTIONS_PER_CLIENT_MAX, ORDER_ASKS_PER_SECOND_MAX,
    STATUS_PER_SECOND_MAX, STOPS_PER_SECOND_MAX,
};
use quorate_types::{ClientId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

#[derive(Debug)]
struct ClientConnection {
    origin: Origin,
    greeted: bool,
    /// Whether it is about to be closed: later messages are ignored.
    closing: bool,
    /// Clients whose replies it has requested, although newer connections may receive them by now.
    attached: BTreeSet<ClientId>,
    /// The number of `attached` that count for [`ATTACHED_MAX`].
    charged: usize,
    status_requests: RequestWindow,
    order_requests: RequestWindow,
    stop_requests: RequestWindow,
}

/// The number of requests in the second that began at `since`.
#[derive(Debug, Default)]
struct RequestWindow {
    since: Time,
    used: u32,
}

impl RequestWindow {
    /// Counts a request. Returns whether it is one of the first `most` of its second.
    fn takes(&mut self, now: Time, most: u32) -> bool {
        const SECOND_NS: u64 = 1_000_000_000;
        if self.used == 0 || now.since(self.since) >= SECOND_NS {
            *self = Self { since: now, used: 0 };
        }
        self.used = self.used.saturating_add(1);
        self.used <= most
    }
}

/// The table of connections and their clients.
#[derive(Debug, Default)]
pub struct Clients {
    connections: BTreeMap<ConnId, ClientConnection>,
    by_client: BTreeMap<ClientId, Vec<ReplyReceiver>>,
    /// The sum over all connections.
    charged: usize,
    /// Connections that do not receive a client's replies (any more), and that were not notified yet.
    displaced: Vec<(ConnId, ClientId)>,
}

/// A connection that receives a client's replies.
#[derive(Clone, Copy, Debug)]
struct ReplyReceiver {
    conn: ConnId,
    /// Whether a bundle with the client's signature has come from it. Any connection can request the replies of any client, so
    /// a request alone never displaces a proven connection.
    proven: bool,
}

impl Clients {
    /// Adds a connection.
    pub fn up(&mut self, conn: ConnId, address: SocketAddr) {
        let connection = ClientConnection {
            origin: Origin::client(address),
            greeted: false,
            closing: false,
            attached: BTreeSet::new(),
            charged: 0,
            status_requests: RequestWindow::default(),
            order_requests: RequestWindow::default(),
            stop_requests: RequestWindow::default(),
        };
        self.connections.insert(conn, connection);
    }

    /// Removes a connection.
    pub fn down(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(&conn) else { return };
        self.charged = self.charged.saturating_sub(connection.charged);
        for client in connection.attached {
            if let Some(conns) = self.by_client.get_mut(&client) {
                conns.retain(|known| known.conn != conn);
                if conns.is_empty() {
                    self.by_client.remove(&client);
                }
            }
        }
    }

    /// Returns the origin under which the faults of a connection count.
    #[must_use]
    pub fn origin(&self, conn: ConnId) -> Origin {
        self.connections.get(&conn).map_or(Origin::Others, |connection| connection.origin)
    }

    /// Notes the valid hello of a connection. Returns false if there was one before.
    pub fn greet(&mut self, conn: ConnId) -> bool {
        let connection = self.connections.get_mut(&conn);
        connection.is_none_or(|connection| !std::mem::replace(&mut connection.greeted, true))
    }

    /// Whether the hello of a connection has arrived: no other message is accepted before it.
    #[must_use]
    pub fn is_greeted(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(|connection| connection.greeted)
    }

    /// Notes that a connection will be closed; its later messages do not count.
    pub fn close(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.closing = true;
            self.charged = self.charged.saturating_sub(std::mem::take(&mut connection.charged));
        }
    }

    /// Whether a connection will be closed.
    #[must_use]
    pub fn is_closing(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(|connection| connection.closing)
    }

    /// Counts a request of a connection for the status. Returns whether it may have an answer: ten times a second.
    pub fn may_ask_status(&mut self, conn: ConnId, now: Time) -> bool {
        let connection = self.connections.get_mut(&conn);
        connection.is_some_and(|connection| connection.status_requests.takes(now, STATUS_PER_SECOND_MAX))
    }

    /// Counts a question of a connection for the order of a bundle. Returns whether it may have an answer.
    pub fn may_ask_order(&mut self, conn: ConnId, now: Time) -> bool {
        let connection = self.connections.get_mut(&conn);
        connection.is_some_and(|connection| connection.order_requests.takes(now, ORDER_ASKS_PER_SECOND_MAX))
    }

    /// Counts a request of a connection to stop the node. Returns whether it may have an answer: ten times a second.
    pub fn may_ask_stop(&mut self, conn: ConnId, now: Time) -> bool {
        let connection = self.connections.get_mut(&conn);
        connection.is_some_and(|connection| connection.stop_requests.takes(now, STOPS_PER_SECOND_MAX))
    }

    /// Notes that a connection requests the replies of these clients.
    ///
    /// # Errors
    /// The connection that must be closed: this one if it requests too many, or the one with the most requests if all
    /// connections together request too many.
    pub fn attach(&mut self, conn: ConnId, clients: &[ClientId]) -> Result<(), ConnId> {
        let Some(connection) = self.connections.get(&conn) else { return Ok(()) };
        if connection.attached.len().saturating_add(clients.len()) > ATTACHED_PER_CONNECTION_MAX {
            return Err(conn);
        }
        for client in clients {
            self.add_receiver(conn, client, false);
        }
        if self.charged <= ATTACHED_MAX {
            return Ok(());
        }
        let open = self.connections.iter().filter(|(_, connection)| !connection.closing);
        open.max_by_key(|(_, connection)| connection.charged).map_or(Ok(()), |(most, _)| Err(*most))
    }

    /// Notes that a bundle with the signature of this client came from a connection. Returns whether it is the first.
    pub fn prove(&mut self, conn: ConnId, client: &ClientId) -> bool {
        let known =
            self.by_client.get(client).and_then(|conns| conns.iter().find(|known| known.conn == conn));
        let is_news = known.is_none_or(|known| !known.proven);
        if is_news {
            self.add_receiver(conn, client, true);
        }
        is_news
    }

    /// Lets a connection receive the replies of a client, in the place of an older connection if there are too many.
    fn add_receiver(&mut self, conn: ConnId, client: &ClientId, proven: bool) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let is_full = connection.attached.len() >= ATTACHED_PER_CONNECTION_MAX;
        if is_full && !connection.attached.contains(client) {
            self.displaced.push((conn, *client));
            return;
        }
        let conns = self.by_client.entry(*client).or_default();
        if let Some(known) = conns.iter_mut().find(|known| known.conn == conn) {
            if proven && !std::mem::replace(&mut known.proven, true) && connection.charged > 0 {
                // The bound is for connections without a proof.
                connection.charged = connection.charged.saturating_sub(1);
                self.charged = self.charged.saturating_sub(1);
            }
            return;
        }
        if conns.len() >= CONNECTIONS_PER_CLIENT_MAX {
            let goes = match conns.iter().position(|known| !known.proven) {
                Some(oldest) => oldest,
                None if proven => 0,
                None => {
                    self.displaced.push((conn, *client));
                    return;
                }
            };
            self.displaced.push((conns.remove(goes).conn, *client));
        }
        conns.push(ReplyReceiver { conn, proven });
        if connection.attached.insert(*client) && !proven {
            connection.charged = connection.charged.saturating_add(1);
            self.charged = self.charged.saturating_add(1);
        }
    }

    /// Returns, once each, the connections that do not receive the replies of a client any more.
    pub fn take_displaced(&mut self) -> Vec<(ConnId, ClientId)> {
        std::mem::take(&mut self.displaced)
    }

    /// Returns the connections that receive the replies of a client.
    pub fn of(&self, client: &ClientId) -> impl Iterator<Item = ConnId> {
        self.by_client.get(client).into_iter().flatten().map(|receiver| receiver.conn)
    }

    /// Returns the numbers of connections and of attached clients, for `status`.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.connections.len(), self.by_client.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::PublicKey;

    fn up(clients: &mut Clients, conn: u64) {
        clients.up(ConnId(conn), SocketAddr::from(([127, 0, 0, 1], 7)));
    }

    fn client(i: u8) -> ClientId {
        PublicKey([i; 32])
    }

    #[test]
    fn replies_find_their_connections() {
        let mut clients = Clients::default();
        up(&mut clients, 1);
        up(&mut clients, 2);
        clients.attach(ConnId(1), &[client(1), client(2)]).unwrap();
        clients.attach(ConnId(2), &[client(2), client(2)]).unwrap();
        assert_eq!(clients.of(&client(2)).collect::<Vec<_>>(), [ConnId(1), ConnId(2)]);
        clients.down(ConnId(1));
        assert_eq!(clients.of(&client(2)).collect::<Vec<_>>(), [ConnId(2)]);
        assert_eq!(clients.of(&client(1)).count(), 0);
        assert_eq!(clients.size(), (1, 1));
    }

    #[test]
    fn connection_receives_the_replies_of_a_bounded_number_of_clients() {
        let mut clients = Clients::default();
        up(&mut clients, 1);
        let many = vec![client(1); ATTACHED_PER_CONNECTION_MAX + 1];
        assert_eq!(clients.attach(ConnId(1), &many), Err(ConnId(1)));
        for conn in 2..20 {
            up(&mut clients, conn);
            clients.attach(ConnId(conn), &[client(9)]).unwrap();
        }
        assert_eq!(clients.of(&client(9)).count(), CONNECTIONS_PER_CLIENT_MAX);
    }

    /// A connection that proves itself again and again still counts once, and is never shut out.
    #[test]
    fn displaced_connection_is_notified_and_displaces_another() {
        let mut clients = Clients::default();
        let most = u64::try_from(CONNECTIONS_PER_CLIENT_MAX).unwrap();
        for conn in 0..=most {
            up(&mut clients, conn);
            clients.attach(ConnId(conn), &[client(9)]).unwrap();
            clients.prove(ConnId(conn), &client(9));
        }
        let displaced = [(ConnId(most), client(9)), (ConnId(0), client(9))];
        assert_eq!(
            clients.take_displaced(),
            displaced,
            "the last has requested in vain, and then proved itself"
        );
        assert_eq!(clients.take_displaced(), [], "once");
        for round in 0..50_000 {
            let returning = round % (most + 1);
            assert!(clients.prove(ConnId(returning), &client(9)), "it is accepted again");
            assert!(clients.of(&client(9)).any(|conn| conn == ConnId(returning)));
            assert_eq!(clients.take_displaced(), [(ConnId((returning + 1) % (most + 1)), client(9))]);
        }
        // A request displaces no proven connection, and a connection that is not accepted is notified.
        up(&mut clients, 99);
        clients.attach(ConnId(99), &[client(9)]).unwrap();
        assert_eq!(clients.take_displaced(), [(ConnId(99), client(9))]);
        for conn in (0..=most).chain([99]) {
            clients.down(ConnId(conn));
        }
        assert_eq!((clients.charged, clients.size()), (0, (0, 0)));
    }

    #[test]
    fn request_for_replies_displaces_no_proven_connection() {
        let mut clients = Clients::default();
        up(&mut clients, 1);
        clients.prove(ConnId(1), &client(9));
        for conn in 2..20 {
            up(&mut clients, conn);
            clients.attach(ConnId(conn), &[client(9)]).unwrap();
        }
        assert!(clients.of(&client(9)).any(|conn| conn == ConnId(1)));
    }

    fn numbered(from: usize, count: usize) -> Vec<ClientId> {
        let client = |i: usize| {
            let mut key = [7; 32];
            key[..8].copy_from_slice(&i.to_le_bytes());
            PublicKey(key)
        };
        (from..from + count).map(client).collect()
    }

    #[test]
    fn connections_together_are_bounded_and_the_one_with_most_requests_is_closed() {
        let mut clients = Clients::default();
        up(&mut clients, 0);
        clients.attach(ConnId(0), &numbered(usize::MAX / 2, 1_000)).unwrap();
        let (most, mut cut) = (ATTACHED_PER_CONNECTION_MAX, 0);
        for conn in 1..30u64 {
            up(&mut clients, conn);
            // Some connections request the same clients: each entry of a connection counts.
            let from = usize::try_from(conn / 6).unwrap() * most;
            if let Err(victim) = clients.attach(ConnId(conn), &numbered(from, most)) {
                assert_ne!(victim, ConnId(0), "it requests little");
                clients.close(victim);
                clients.attach(ConnId(0), &numbered(conn.try_into().unwrap(), 1)).unwrap();
                clients.down(victim);
                cut += 1;
            }
            let kept: usize = clients.connections.values().map(|connection| connection.attached.len()).sum();
            assert!(kept <= ATTACHED_MAX, "{kept}");
        }
        assert!(cut > 10, "{cut}");
        assert_eq!(clients.of(&numbered(usize::MAX / 2, 1)[0]).collect::<Vec<_>>(), [ConnId(0)]);
        for conn in 0..30 {
            clients.down(ConnId(conn));
        }
        assert_eq!((clients.charged, clients.size()), (0, (0, 0)));
    }

    #[test]
    fn connection_is_not_charged_for_proven_clients() {
        let mut clients = Clients::default();
        up(&mut clients, 1);
        clients.attach(ConnId(1), &[client(1), client(2)]).unwrap();
        assert_eq!(clients.charged, 2);
        assert!(clients.prove(ConnId(1), &client(1)) && clients.prove(ConnId(1), &client(3)));
        assert!(!clients.prove(ConnId(1), &client(1)), "not the first");
        assert_eq!(clients.charged, 1);
        clients.down(ConnId(1));
        assert_eq!(clients.charged, 0);
    }

    #[test]
    fn connection_has_one_hello_and_ten_statuses_a_second() {
        let mut clients = Clients::default();
        up(&mut clients, 1);
        assert!(clients.greet(ConnId(1)) && !clients.greet(ConnId(1)) && clients.is_greeted(ConnId(1)));
        for start in [0, 1_000_000_000, 5_000_000_000] {
            let allowed = (0..50u64).filter(|i| clients.may_ask_status(ConnId(1), Time(start + i)));
            assert_eq!(allowed.count(), 10);
        }
        clients.close(ConnId(1));
        assert!(clients.is_closing(ConnId(1)) && !clients.is_closing(ConnId(2)));
        assert_eq!(clients.origin(ConnId(1)).to_string(), "client 127.0.0.1");
        assert_eq!(clients.origin(ConnId(2)), Origin::Others);
    }
}
