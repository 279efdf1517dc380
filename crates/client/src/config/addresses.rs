//! Checks of addresses: unusable ones, and equal ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The use of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressUse {
    /// Other machines dial it.
    Dial,
    /// A node listens on it.
    Listen,
}

impl AddressUse {
    /// Describes an address of this use.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Dial => {
                "an IP address and a port other than 0 that others can dial (not 0.0.0.0, [::], multicast or broadcast)"
            }
            Self::Listen => "an IP address and a port other than 0 (not multicast or broadcast)",
        }
    }

    /// Whether an address suits this use.
    #[must_use]
    pub fn suits(self, address: &SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let is_many = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        let is_open = ip.is_unspecified() && self == Self::Dial;
        address.port() != 0 && !is_many && !is_open
    }
}

/// Returns a value that is equal for all written forms of one address.
#[must_use]
pub fn identity(address: &SocketAddr) -> (IpAddr, u16, u32) {
    let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
    (address.ip().to_canonical(), address.port(), scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_addresses_depend_on_the_use() {
        for (text, dial, listen) in [
            ("127.0.0.1:4000", true, true),
            ("[::1]:4000", true, true),
            ("[2001:db8::7]:1", true, true),
            ("10.0.0.7:65535", true, true),
            ("127.0.0.1:0", false, false),
            ("[::1]:0", false, false),
            ("0.0.0.0:4000", false, true),
            ("[::]:4000", false, true),
            ("[::ffff:0.0.0.0]:4000", false, true),
            ("224.0.0.1:4000", false, false),
            ("[ff02::1]:4000", false, false),
            ("[::ffff:224.0.0.1]:4000", false, false),
            ("255.255.255.255:4000", false, false),
            ("0.0.0.0:0", false, false),
        ] {
            let address = text.parse().unwrap();
            assert_eq!(
                (AddressUse::Dial.suits(&address), AddressUse::Listen.suits(&address)),
                (dial, listen),
                "{text}"
            );
        }
    }

    #[test]
    fn one_socket_has_one_identity() {
        let of = |text: &str| identity(&text.parse().unwrap());
        assert_eq!(of("127.0.0.1:4000"), of("[::ffff:127.0.0.1]:4000"));
        assert_eq!(of("[::1]:4000"), of("[0:0::1]:4000"));
        for other in ["127.0.0.1:4001", "127.0.0.2:4000", "[::1]:4000"] {
            assert_ne!(of("127.0.0.1:4000"), of(other));
        }
        assert_ne!(of("[fe80::1%1]:4000"), of("[fe80::1%2]:4000"));
    }
}
