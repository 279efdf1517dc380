//! The layer between a socket and plain text: TLS, or nothing. Bytes go in and out; the sockets belong to the
//! reactor.

use crate::frame::Refusal;
use crate::tls;
use quorate_types::PublicKey;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

/// One connection's session.
pub struct Session(Kind);

enum Kind {
    /// Bytes to be written, and the number of those that were.
    Plain {
        out: Vec<u8>,
        written: usize,
    },
    Tls(Box<Connection>),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Plain { .. } => "Session(plain)",
            Kind::Tls(_) => "Session(tls)",
        })
    }
}

impl Session {
    /// Returns a session without protection.
    #[must_use]
    pub fn plain() -> Self {
        Self(Kind::Plain { out: Vec::new(), written: 0 })
    }

    /// Returns the session of the side that dials.
    ///
    /// # Errors
    /// Fails when the TLS library refuses its configuration.
    pub fn dial(config: &Arc<ClientConfig>) -> Result<Self, Refusal> {
        let name = tls::server_name().map_err(|_| Refusal::Tls("no name to dial"))?;
        let connection = ClientConnection::new(config.clone(), name).map_err(refusal)?;
        Ok(Self::tls(Connection::from(connection)))
    }

    /// Returns the session of the side that is dialled.
    ///
    /// # Errors
    /// Fails when the TLS library refuses its configuration.
    pub fn accept(config: &Arc<ServerConfig>) -> Result<Self, Refusal> {
        let connection = ServerConnection::new(config.clone()).map_err(refusal)?;
        Ok(Self::tls(Connection::from(connection)))
    }

    fn tls(mut connection: Connection) -> Self {
        // The caller counts the waiting bytes.
        connection.set_buffer_limit(None);
        Self(Kind::Tls(Box::new(connection)))
    }

    /// Whether plain text cannot flow yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        match &self.0 {
            Kind::Plain { .. } => false,
            Kind::Tls(connection) => connection.is_handshaking(),
        }
    }

    /// Returns the key that the other side has proved to hold; `None` in plain text, and from clients.
    #[must_use]
    pub fn peer_key(&self) -> Option<PublicKey> {
        match &self.0 {
            Kind::Plain { .. } => None,
            Kind::Tls(connection) => connection.peer_certificates()?.first().and_then(tls::key_of),
        }
    }

    /// Takes bytes of the socket and hands out the plain text in them.
    ///
    /// # Errors
    /// Fails when the other side broke the rules of TLS, or the error of `sink`. [`Refusal::Closed`] when the other
    /// side has ended the session properly.
    pub fn read(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Kind::Tls(connection) = &mut self.0 else {
            return sink(bytes);
        };
        while !bytes.is_empty() {
            // The library takes a few kB at a time, and must be emptied each time or it refuses more.
            let taken =
                connection.read_tls(&mut bytes).map_err(|_| Refusal::Tls("a TLS record is too large"))?;
            connection.process_new_packets().map_err(refusal)?;
            let mut reader = connection.reader();
            loop {
                match reader.fill_buf() {
                    Ok([]) => return Err(Refusal::Closed),
                    Ok(plain) => {
                        sink(plain)?;
                        let count = plain.len();
                        reader.consume(count);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return Err(Refusal::Tls("the TLS session ended early")),
                }
            }
            if taken == 0 {
                return Err(Refusal::Closed);
            }
        }
        Ok(())
    }

    /// Takes plain text, all of it: the caller limits the bytes that wait.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) {
        match &mut self.0 {
            Kind::Plain { out, .. } => slices.iter().for_each(|slice| out.extend_from_slice(slice)),
            Kind::Tls(connection) => {
                // Without a limit the library takes everything, or the session is broken and the next read
                // or write reports it. The library makes a list of several pieces, which costs more than a copy of
                // small ones.
                let mut small = [0; GATHER_BYTES_MAX];
                let _ = match (slices, gather(slices, &mut small)) {
                    ([whole], _) => connection.writer().write(whole),
                    (_, Some(whole)) => connection.writer().write(whole),
                    (pieces, None) => connection.writer().write_vectored(pieces),
                };
            }
        }
    }

    /// Ends this side's direction of the session.
    pub fn finish(&mut self) {
        if let Kind::Tls(connection) = &mut self.0 {
            connection.send_close_notify();
        }
    }

    /// Whether bytes wait to be written to the socket.
    #[must_use]
    pub fn pending(&self) -> bool {
        match &self.0 {
            Kind::Plain { out, .. } => !out.is_empty(),
            Kind::Tls(connection) => connection.wants_write(),
        }
    }

    /// Writes to the socket once; returns the number of bytes that it took.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn write(&mut self, socket: &mut dyn Write) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain { out, written } => {
                let count = socket.write(out.get(*written..).unwrap_or_default())?;
                *written = written.saturating_add(count);
                if *written >= out.len() {
                    out.clear();
                    *written = 0;
                    if out.capacity() > PLAIN_KEEP_BYTES {
                        *out = Vec::new();
                    }
                }
                Ok(count)
            }
            Kind::Tls(connection) => connection.write_tls(socket),
        }
    }
}

/// Bytes up to which several pieces are copied into one.
const GATHER_BYTES_MAX: usize = 1 << 10;

/// Copies the pieces into `room`; `None` if they do not fit.
fn gather<'a>(slices: &[IoSlice<'_>], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let total = slices.iter().map(|slice| slice.len()).fold(0, usize::saturating_add);
    if total > room.len() {
        return None;
    }
    let mut end = 0usize;
    for slice in slices {
        let start = end;
        end = start.checked_add(slice.len())?;
        room.get_mut(start..end)?.copy_from_slice(slice);
    }
    room.get(..end)
}

/// Memory that an idle plain session keeps for writing.
const PLAIN_KEEP_BYTES: usize = 1 << 20;

fn refusal(error: rustls::Error) -> Refusal {
    Refusal::Tls(tls::reason(&error))
}

#[cfg(test)]
mod tests;
