//! Who speaks for which client: replies go to the connections that asked for them.

use quorate_replica::ConnId;
use quorate_types::ClientId;
use quorate_types::limits::{ATTACHED_PER_CONNECTION_MAX, CONNECTIONS_PER_CLIENT_MAX};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Connection {
    greeted: bool,
    attached: Vec<ClientId>,
}

/// The table of connections and the clients that they speak for.
#[derive(Debug, Default)]
pub struct Clients {
    connections: BTreeMap<ConnId, Connection>,
    by_client: BTreeMap<ClientId, Vec<Speaker>>,
}

/// A connection that wants a client's replies.
#[derive(Clone, Copy, Debug)]
struct Speaker {
    conn: ConnId,
    /// It has handed over a bundle that the client signed. Anybody can ask for anybody's replies, so one that
    /// has only asked never displaces one that has proven itself.
    proven: bool,
}

impl Clients {
    /// A connection is up.
    pub fn up(&mut self, conn: ConnId) {
        self.connections.insert(conn, Connection::default());
    }

    /// A connection is gone.
    pub fn down(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(&conn) else { return };
        for client in connection.attached {
            if let Some(conns) = self.by_client.get_mut(&client) {
                conns.retain(|known| known.conn != conn);
                if conns.is_empty() {
                    self.by_client.remove(&client);
                }
            }
        }
    }

    /// The hello of a connection was good.
    pub fn greet(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.greeted = true;
        }
    }

    /// Whether a connection has said hello: nothing else is taken from it before.
    #[must_use]
    pub fn is_greeted(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(|connection| connection.greeted)
    }

    /// A connection wants the replies for these clients. False when it wants too many.
    pub fn attach(&mut self, conn: ConnId, clients: &[ClientId]) -> bool {
        let Some(connection) = self.connections.get(&conn) else { return true };
        if connection.attached.len().saturating_add(clients.len()) > ATTACHED_PER_CONNECTION_MAX {
            return false;
        }
        for client in clients {
            self.speak(conn, client, false);
        }
        true
    }

    /// A connection has handed over a bundle that this client signed.
    pub fn prove(&mut self, conn: ConnId, client: &ClientId) {
        let known =
            self.by_client.get(client).and_then(|conns| conns.iter().find(|known| known.conn == conn));
        if known.is_none_or(|known| !known.proven) {
            self.speak(conn, client, true);
        }
    }

    fn speak(&mut self, conn: ConnId, client: &ClientId, proven: bool) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if connection.attached.len() >= ATTACHED_PER_CONNECTION_MAX {
            return;
        }
        let conns = self.by_client.entry(*client).or_default();
        if let Some(known) = conns.iter_mut().find(|known| known.conn == conn) {
            known.proven |= proven;
            return;
        }
        if conns.len() >= CONNECTIONS_PER_CLIENT_MAX {
            match conns.iter().position(|known| !known.proven) {
                Some(oldest) => {
                    conns.remove(oldest);
                }
                None if proven => {
                    conns.remove(0);
                }
                None => return,
            }
        }
        conns.push(Speaker { conn, proven });
        connection.attached.push(*client);
    }

    /// Connections that speak for a client.
    pub fn of(&self, client: &ClientId) -> impl Iterator<Item = ConnId> {
        self.by_client.get(client).into_iter().flatten().map(|speaker| speaker.conn)
    }

    /// Connections and attached clients: for status.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.connections.len(), self.by_client.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::PublicKey;

    fn client(i: u8) -> ClientId {
        PublicKey([i; 32])
    }

    #[test]
    fn replies_find_their_connections() {
        let mut clients = Clients::default();
        clients.up(ConnId(1));
        clients.up(ConnId(2));
        assert!(clients.attach(ConnId(1), &[client(1), client(2)]));
        assert!(clients.attach(ConnId(2), &[client(2), client(2)]));
        assert_eq!(clients.of(&client(2)).collect::<Vec<_>>(), [ConnId(1), ConnId(2)]);
        clients.down(ConnId(1));
        assert_eq!(clients.of(&client(2)).collect::<Vec<_>>(), [ConnId(2)]);
        assert_eq!(clients.of(&client(1)).count(), 0);
        assert_eq!(clients.size(), (1, 1));
    }

    #[test]
    fn a_connection_speaks_for_a_bounded_number() {
        let mut clients = Clients::default();
        clients.up(ConnId(1));
        let many = vec![client(1); ATTACHED_PER_CONNECTION_MAX + 1];
        assert!(!clients.attach(ConnId(1), &many));
        for conn in 2..20 {
            clients.up(ConnId(conn));
            clients.attach(ConnId(conn), &[client(9)]);
        }
        assert_eq!(clients.of(&client(9)).count(), CONNECTIONS_PER_CLIENT_MAX);
    }

    #[test]
    fn asking_for_anothers_replies_takes_none_away() {
        let mut clients = Clients::default();
        clients.up(ConnId(1));
        clients.prove(ConnId(1), &client(9));
        for conn in 2..20 {
            clients.up(ConnId(conn));
            clients.attach(ConnId(conn), &[client(9)]);
        }
        assert!(clients.of(&client(9)).any(|conn| conn == ConnId(1)));
    }
}
