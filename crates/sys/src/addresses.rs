//! The addresses that the interfaces of this machine hold.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the addresses of this network namespace; later others may come and go.
///
/// # Errors
/// The error of the kernel.
pub fn held() -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is writable; on success it is a list that must be freed.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut at) = (Vec::new(), list);
    while !at.is_null() {
        // SAFETY: `at` is a node of the list, which is freed below.
        let one = unsafe { &*at };
        at = one.ifa_next;
        if one.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: an address has a family.
        let family = i32::from(unsafe { (*one.ifa_addr).sa_family });
        match family {
            libc::AF_INET => {
                // SAFETY: the family says which kind of address it is.
                let address = unsafe { &*one.ifa_addr.cast::<libc::sockaddr_in>() };
                found.push(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into());
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { &*one.ifa_addr.cast::<libc::sockaddr_in6>() };
                found.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
            }
            _ => {}
        }
    }
    // SAFETY: `getifaddrs` made the list, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_among_them() {
        let held = held().unwrap();
        assert!(held.contains(&Ipv4Addr::LOCALHOST.into()), "{held:?}");
    }
}
