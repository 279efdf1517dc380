//! Tests of two sessions; the test moves the bytes.

use super::*;
use crate::tls::{LinkKey, TlsError};

fn key(seed: u8) -> LinkKey {
    LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[seed; 32])).unwrap()
}

/// Moves the waiting bytes from one side to the other; returns their plain text.
fn carry(from: &mut Session, to: &mut Session) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while from.pending() {
        from.write(&mut bytes).unwrap();
    }
    let mut plain = Vec::new();
    to.read(&bytes, &mut |text| {
        plain.extend_from_slice(text);
        Ok(())
    })
    .map(|()| plain)
}

/// Runs the handshake; returns its results for the side that dials and for the side that is dialled.
fn shake(dialler: &mut Session, acceptor: &mut Session) -> (Result<(), Refusal>, Result<(), Refusal>) {
    let (mut first, mut second) = (Ok(()), Ok(()));
    for _ in 0..4 {
        second = second.and_then(|()| carry(dialler, acceptor).map(drop));
        // A side that has failed still sends its alert, which is carried as well.
        first = first.and_then(|()| carry(acceptor, dialler).map(drop));
    }
    (first, second)
}

fn pair(ours: &LinkKey, theirs: &LinkKey, expect: &LinkKey, committee: &[&LinkKey]) -> (Session, Session) {
    let committee: Vec<PublicKey> = committee.iter().map(|key| key.public()).collect();
    (
        Session::dial(&tls::dial_peer(ours, expect.public()).unwrap()).unwrap(),
        Session::accept(&tls::listen_to_peers(theirs, &committee).unwrap()).unwrap(),
    )
}

#[test]
fn members_of_the_committee_connect_and_exchange_text() {
    let (a, b) = (key(1), key(2));
    let (mut dialler, mut acceptor) = pair(&a, &b, &b, &[&a, &b]);
    assert!(dialler.is_handshaking() && acceptor.is_handshaking());
    assert_eq!(shake(&mut dialler, &mut acceptor), (Ok(()), Ok(())));
    assert!(!dialler.is_handshaking() && !acceptor.is_handshaking());
    assert_eq!(dialler.peer_key(), Some(b.public()));
    assert_eq!(acceptor.peer_key(), Some(a.public()));
    assert!(!acceptor.pending(), "no tickets: a listener never writes on its own");
    let body = vec![9; 300_000];
    dialler.send(&[IoSlice::new(b"head"), IoSlice::new(&body)]);
    assert_eq!(carry(&mut dialler, &mut acceptor).unwrap(), [&b"head"[..], &body].concat());
    acceptor.finish();
    assert_eq!(carry(&mut acceptor, &mut dialler), Err(Refusal::Closed));
}

#[test]
fn another_key_under_the_right_name_is_refused_in_both_directions() {
    let wrong_key =
        Refusal::Tls("the certificate carries another link key: another replica, or another cluster");
    let alert = Refusal::Tls("the other side refused the TLS handshake");
    let (a, b, stranger) = (key(1), key(2), key(3));
    // All certificates carry the same name. A stranger listens where replica b was expected.
    let (mut dialler, mut acceptor) = pair(&a, &stranger, &b, &[&a, &b]);
    assert_eq!(shake(&mut dialler, &mut acceptor), (Err(wrong_key), Err(alert)));
    // A stranger dials.
    let (mut dialler, mut acceptor) = pair(&stranger, &b, &b, &[&a, &b]);
    assert_eq!(shake(&mut dialler, &mut acceptor), (Err(alert), Err(wrong_key)));
    // Another member of the committee listens where replica b was expected.
    let other = key(4);
    let (mut dialler, mut acceptor) = pair(&a, &other, &b, &[&a, &b, &other]);
    assert_eq!(shake(&mut dialler, &mut acceptor), (Err(wrong_key), Err(alert)));
}

#[test]
fn peer_must_show_a_key_and_client_need_not() {
    let replica = key(2);
    let dial = tls::dial_replica(replica.public()).unwrap();
    let mut client = Session::dial(&dial).unwrap();
    let mut peers = Session::accept(&tls::listen_to_peers(&replica, &[key(1).public()]).unwrap()).unwrap();
    let (_, second) = shake(&mut client, &mut peers);
    assert_eq!(second, Err(Refusal::Tls("no certificate was shown")));

    let mut client = Session::dial(&dial).unwrap();
    let mut clients = Session::accept(&tls::listen_to_clients(&replica).unwrap()).unwrap();
    assert_eq!(shake(&mut client, &mut clients), (Ok(()), Ok(())));
    assert_eq!(clients.peer_key(), None);
    // The client refuses a replica with another key.
    let mut client = Session::dial(&dial).unwrap();
    let mut clients = Session::accept(&tls::listen_to_clients(&key(3)).unwrap()).unwrap();
    assert!(shake(&mut client, &mut clients).0.is_err());
}

#[test]
fn replay_of_a_recorded_handshake_yields_nothing() {
    let (a, b) = (key(1), key(2));
    let (mut dialler, mut acceptor) = pair(&a, &b, &b, &[&a, &b]);
    let mut recording: Vec<Vec<u8>> = Vec::new();
    for _ in 0..2 {
        let mut bytes = Vec::new();
        while dialler.pending() {
            dialler.write(&mut bytes).unwrap();
        }
        acceptor.read(&bytes, &mut |_| Ok(())).unwrap();
        recording.push(bytes);
        carry(&mut acceptor, &mut dialler).unwrap();
    }
    assert!(!acceptor.is_handshaking());
    let (_, mut again) = pair(&a, &b, &b, &[&a, &b]);
    let replayed: Result<Vec<()>, Refusal> =
        recording.iter().map(|bytes| again.read(bytes, &mut |_| Ok(()))).collect();
    assert!(replayed.is_err());
    assert!(again.is_handshaking() || again.peer_key().is_none());
}

#[test]
fn garbage_is_refused_with_its_reason() {
    let (a, b) = (key(1), key(2));
    let (_, mut acceptor) = pair(&a, &b, &b, &[&a]);
    let garbage = acceptor.read(b"GET / HTTP/1.1\r\n\r\n", &mut |_| Ok(()));
    assert_eq!(garbage, Err(Refusal::Tls("what arrived is not TLS")));
    let (mut dialler, mut acceptor) = pair(&a, &b, &b, &[&a, &b]);
    let (_, second) = shake(&mut dialler, &mut acceptor);
    assert_eq!(second, Ok(()));
    dialler.send(&[IoSlice::new(b"a record that is damaged under way")]);
    let mut bytes = Vec::new();
    dialler.write(&mut bytes).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = acceptor.read(&bytes, &mut |_| panic!("no plain text of a damaged record"));
    assert_eq!(damaged, Err(Refusal::Tls("a TLS record does not decrypt")));
}

#[test]
fn keys_of_the_wrong_kind_are_refused() {
    assert_eq!(LinkKey::from_pkcs8(b"no key").unwrap_err(), TlsError::BadKey);
    let der = LinkKey::pkcs8_of_seed(&[1; 32]);
    assert_eq!(LinkKey::from_pkcs8(&der[..40]).unwrap_err(), TlsError::BadKey);
    // RFC 8032, section 7.1, test 1.
    let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let seed: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&seed[2 * i..2 * i + 2], 16).unwrap()).collect();
    let key = LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&seed.try_into().unwrap())).unwrap();
    assert_eq!(key.public().to_string(), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
}

#[test]
fn plain_sessions_pass_text_through_in_pieces() {
    let (mut a, mut b) = (Session::plain(), Session::plain());
    a.send(&[IoSlice::new(b"one "), IoSlice::new(b"two")]);
    struct OneByte(Vec<u8>);
    impl Write for OneByte {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.extend(bytes.first());
            Ok(bytes.len().min(1))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut socket = OneByte(Vec::new());
    while a.pending() {
        a.write(&mut socket).unwrap();
    }
    let mut plain = Vec::new();
    b.read(&socket.0, &mut |text| {
        plain.extend_from_slice(text);
        Ok(())
    })
    .unwrap();
    assert_eq!(plain, b"one two");
}
