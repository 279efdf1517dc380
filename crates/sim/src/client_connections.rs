//! The connections of clients to one replica.

use quorate_types::ClientId;
use std::collections::BTreeMap;

/// Connections by the client that they authenticate.
#[derive(Default, Debug)]
pub(crate) struct ClientConnections(BTreeMap<ClientId, Vec<usize>>);

impl ClientConnections {
    pub(crate) fn of(&self, client: &ClientId) -> &[usize] {
        self.0.get(client).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn attach(&mut self, index: usize, client: ClientId) {
        let conns = self.0.entry(client).or_default();
        if !conns.contains(&index) {
            conns.push(index);
        }
    }

    pub(crate) fn detach(&mut self, index: usize) {
        self.0.values_mut().for_each(|conns| conns.retain(|conn| *conn != index));
    }
}
