//! The interfaces of this network namespace, and their addresses.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An interface that is up and speaks Ethernet, or the loopback, and one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// The interfaces of this network namespace that have addresses, an entry for each address.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn held() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is writable; on success it is a list to be freed.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut ethernet, mut found) = (Vec::new(), Vec::new());
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is a node of the list, which is freed below.
        let one = unsafe { &*at };
        at = one.ifa_next;
        if one.ifa_addr.is_null() || one.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: the name ends in NUL and lives as long as the list.
        let name = unsafe { CStr::from_ptr(one.ifa_name) };
        // SAFETY: an address has a family.
        let family = i32::from(unsafe { (*one.ifa_addr).sa_family });
        let address = match family {
            libc::AF_INET => {
                // SAFETY: the family says which kind of address it is.
                let address = unsafe { &*one.ifa_addr.cast::<libc::sockaddr_in>() };
                IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { &*one.ifa_addr.cast::<libc::sockaddr_in6>() };
                IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
            }
            libc::AF_PACKET => {
                // SAFETY: as above.
                let address = unsafe { &*one.ifa_addr.cast::<libc::sockaddr_ll>() };
                if matches!(address.sll_hatype, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
                    ethernet.push(address.sll_ifindex as u32);
                }
                continue;
            }
            _ => continue,
        };
        // SAFETY: the name ends in NUL.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        found.push(InterfaceAddress { index, name: name.to_string_lossy().into_owned(), address });
    }
    // SAFETY: it was given by getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    found.retain(|held| ethernet.contains(&held.index));
    Ok(found)
}

/// The index of every interface of this network namespace; none if they cannot be listed.
pub(crate) fn all() -> Vec<u32> {
    // SAFETY: the call has no conditions; a list that it gives ends with an index of zero, and is freed
    // below.
    let list = unsafe { libc::if_nameindex() };
    let mut found = Vec::new();
    if list.is_null() {
        return found;
    }
    let mut at = list;
    loop {
        // SAFETY: every entry before it had an index, so this one is a part of the list.
        let index = unsafe { (*at).if_index };
        if index == 0 {
            break;
        }
        found.push(index);
        // SAFETY: the list goes on behind an entry with an index.
        at = unsafe { at.add(1) };
    }
    // SAFETY: it was given by if_nameindex, and nothing of it is used any more.
    unsafe { libc::if_freenameindex(list) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_holds_its_address() {
        let held = held().unwrap();
        assert!(held.iter().all(|held| all().contains(&held.index)), "{held:?}");
        assert!(
            held.iter().any(|held| held.address == IpAddr::V4(Ipv4Addr::LOCALHOST)),
            "{held:?}"
        );
    }
}
