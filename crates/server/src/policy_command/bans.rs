//! `forebay policy ban`, `unban` and `bans`: clients that an operator bans for a time.

use super::text_table::TextTable;
use crate::command::CommandAnswer;
use forebay_http::cidr::{CidrBlock, CidrError};
use forebay_http::date;
use forebay_metrics::RefusedAt;
use forebay_policy::bans::{
    BanList, BanOrigin, BanRecord, ClientBan, MOST_BY_COMMAND, TooManyBans, banned_network, is_wide,
};
use forebay_policy::spared::{SparedAs, SparedClients};
use std::fmt::{self, Display, Write};
use std::time::Duration;

/// The largest number of bans from files that are shown, unless all are asked for.
const MOST_SHOWN: usize = 50;

/// The largest number of spared addresses in a banned network that are named.
const MOST_NAMED: usize = 5;

/// The arguments of `forebay policy ban`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanOrder {
    /// The networks to ban.
    pub networks: Vec<CidrBlock>,
    /// The length of the ban, at least a second.
    pub period: Duration,
    /// Whether large networks may be banned, too.
    pub is_forced: bool,
    /// The reason, in one line.
    pub why: String,
}

/// The reason why a ban cannot be set or lifted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BanError {
    /// The text is not a valid order.
    Form,
    /// The text is not a network.
    Network(String, CidrError),
    /// The ban would be over at once.
    NoTime,
    /// The network is so large that a mistake is likely.
    Wide(CidrBlock),
    /// The network is never banned.
    Spared(CidrBlock, SparedAs),
    /// The largest number of bans is reached.
    TooMany,
    /// The network is not banned.
    NotBanned(CidrBlock),
    /// The network itself is not banned, but another one that contains it.
    Around(CidrBlock, CidrBlock),
    /// The ban comes from a file.
    OfFile(CidrBlock, BanOrigin),
}

impl Display for BanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BanError::Form => f.write_str("an address or a network is expected, and for how long"),
            BanError::Network(found, error) => write!(f, "{found:?}: {error}"),
            BanError::NoTime => f.write_str("a ban lasts a second at least, such as --for 1h"),
            BanError::Wide(network) => write!(
                f,
                "{} is more than /8 (IPv6: /19), and may have your own clients in it; --force bans it all the same",
                Named(*network)
            ),
            BanError::Spared(network, why) => {
                write!(f, "{} is {why}, and is never banned", Named(*network))
            }
            BanError::TooMany => write!(
                f,
                "there are {MOST_BY_COMMAND} bans by command, and no more can be: larger networks, or a file of \
                 policy.ban_files, hold more"
            ),
            BanError::NotBanned(network) => {
                write!(f, "{} is not banned; forebay policy bans shows who is", Named(*network))
            }
            BanError::Around(network, around) => write!(
                f,
                "{} is banned as part of {around}: lift that with forebay policy unban {around}",
                Named(*network)
            ),
            BanError::OfFile(network, origin) => {
                write!(f, "{} is banned by {}: take it out there", Named(*network), SaidBy(origin))
            }
        }
    }
}

impl std::error::Error for BanError {}

impl BanError {
    fn answer(&self) -> CommandAnswer {
        let code = match self {
            BanError::Form | BanError::Network(..) | BanError::NoTime | BanError::Wide(_) => 2,
            _ => 1,
        };
        CommandAnswer { code, text: format!("forebay policy: {self}; nothing has changed\n") }
    }
}

/// A network as it is shown; a network of one address is shown as the address.
struct Named(CidrBlock);

impl Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.first() == self.0.last() {
            true => self.0.first().fmt(f),
            false => self.0.fmt(f),
        }
    }
}

/// The origin of a ban, as it is shown.
struct SaidBy<'o>(&'o BanOrigin);

impl Display for SaidBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BanOrigin::Command => f.write_str("command"),
            BanOrigin::File { file, line } => write!(f, "{file}:{line}"),
        }
    }
}

/// A number of seconds as people write it, with at most two units: `59m`, `1h30m`, `7d`.
struct BanPeriod(u64);

impl Display for BanPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
        let at = units.iter().position(|(_, unit_s)| self.0 >= *unit_s).unwrap_or(3);
        let (unit, unit_s) = units[at];
        write!(f, "{}{unit}", self.0 / unit_s)?;
        match units.get(at + 1).map(|(unit, smaller_s)| (unit, self.0 % unit_s / smaller_s)) {
            Some((unit, rest)) if rest > 0 => write!(f, "{rest}{unit}"),
            _ => Ok(()),
        }
    }
}

impl Display for BanOrder {
    /// Writes the order as it is sent to a server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let force = if self.is_forced { " force" } else { "" };
        let why = self.why.replace(['\n', '\r'], " ");
        write!(f, "policy ban\n{}{force}\n{why}", self.period.as_secs())?;
        self.networks.iter().try_for_each(|network| write!(f, "\n{network}"))
    }
}

impl BanOrder {
    /// Reads the lines behind `policy ban`.
    ///
    /// # Errors
    /// The error in the text.
    fn parse(text: &str) -> Result<BanOrder, BanError> {
        let mut lines = text.split('\n');
        let (first, why) = lines.next().zip(lines.next()).ok_or(BanError::Form)?;
        let (seconds, is_forced) = match first.strip_suffix(" force") {
            Some(seconds) => (seconds, true),
            None => (first, false),
        };
        let seconds = seconds.parse().map_err(|_| BanError::Form)?;
        let networks = networks(lines)?;
        Ok(BanOrder {
            networks,
            period: Duration::from_secs(seconds),
            is_forced,
            why: why.to_owned(),
        })
    }
}

fn networks<'t>(lines: impl Iterator<Item = &'t str>) -> Result<Vec<CidrBlock>, BanError> {
    let read = |text: &str| {
        banned_network(text).map_err(|error| BanError::Network(text.to_owned(), error))
    };
    let networks: Vec<_> = lines.map(read).collect::<Result<_, _>>()?;
    if networks.is_empty() { Err(BanError::Form) } else { Ok(networks) }
}

/// Carries out the lines behind `policy ban`, as a whole or not at all.
pub fn ban(bans: &mut BanList, asked: &str, spared: &SparedClients, now_s: u64) -> CommandAnswer {
    let done = BanOrder::parse(asked).and_then(|order| add(bans, &order, spared, now_s));
    done.map_or_else(|error| error.answer(), |text| CommandAnswer { code: 0, text })
}

fn add(
    bans: &mut BanList,
    order: &BanOrder,
    spared: &SparedClients,
    now_s: u64,
) -> Result<String, BanError> {
    let BanOrder { networks, period, is_forced, why } = order;
    if period.as_secs() == 0 {
        return Err(BanError::NoTime);
    }
    let mut next = bans.clone();
    let mut said = String::new();
    for network in networks {
        if let Some(why) = why_spared(spared, *network) {
            return Err(BanError::Spared(*network, why));
        }
        if is_wide(*network) && !is_forced {
            return Err(BanError::Wide(*network));
        }
        let until_s = now_s.saturating_add(period.as_secs());
        let record = BanRecord::new(*network, Some(until_s), why);
        let why = record.why.clone();
        let before = next.add(record).map_err(|TooManyBans| BanError::TooMany)?;
        let (named, span) = (Named(*network), BanPeriod(period.as_secs()));
        // writing into a string does not fail
        let _ = write!(said, "{named} is banned for {span}, until {}", date::rfc3339(until_s));
        if !why.is_empty() {
            let _ = write!(said, ": {why}");
        }
        if let Some(before_s) = before.and_then(|before| before.record.until_s) {
            let _ = write!(said, " (before: until {})", date::rfc3339(before_s));
        }
        let within: Vec<_> = spared.within(*network).collect();
        for (block, why) in within.iter().take(MOST_NAMED) {
            let _ = write!(said, "\nbut not {} in it, {why}", Named(*block));
        }
        if let Some(more @ 1..) = within.len().checked_sub(MOST_NAMED) {
            let _ = write!(said, "\nand {more} others in it that are never banned");
        }
        said.push('\n');
    }
    *bans = next;
    Ok(said)
}

/// The reason why no client of this network can be banned, if there is one.
fn why_spared(spared: &SparedClients, network: CidrBlock) -> Option<SparedAs> {
    // a ban of an IPv6 address covers its /64, so none of the /64 of a spared address is banned
    let is_one = network.is_ipv4() && network.first() == network.last()
        || !network.is_ipv4() && network.prefix_len() >= 64;
    let why = is_one.then(|| spared.why(network.first())).flatten();
    why.or_else(|| spared.why_all(network))
}

/// Lifts the bans of the networks in the lines behind `policy unban`, all or none.
pub fn unban(bans: &mut BanList, asked: &str, now_s: u64) -> CommandAnswer {
    let lifted = networks(asked.split('\n')).and_then(|networks| lift(bans, &networks, now_s));
    lifted.map_or_else(|error| error.answer(), |text| CommandAnswer { code: 0, text })
}

fn lift(bans: &mut BanList, networks: &[CidrBlock], now_s: u64) -> Result<String, BanError> {
    let mut next = bans.clone();
    let mut said = String::new();
    for network in networks {
        let Some(lifted) = next.remove(*network).filter(|ban| ban.holds_at(now_s)) else {
            return Err(match next.around(*network, now_s) {
                None => BanError::NotBanned(*network),
                Some(ban) if ban.record.network != *network => {
                    BanError::Around(*network, ban.record.network)
                }
                Some(ban) => BanError::OfFile(*network, ban.origin.clone()),
            });
        };
        let _ = write!(said, "{} is not banned any more", Named(*network));
        let (connections, requests) =
            (lifted.refused(RefusedAt::Accept), lifted.refused(RefusedAt::Request));
        let _ =
            write!(said, "; its ban has refused {connections} connections and {requests} requests");
        if let Some(still) = next.around(*network, now_s) {
            let of = Named(still.record.network);
            let _ = write!(said, "\nbut {of} is banned yet, by {}", SaidBy(&still.origin));
        }
        said.push('\n');
    }
    *bans = next;
    Ok(said)
}

/// The bans in force, as a table.
pub fn show(bans: &BanList, is_all: bool, now_s: u64) -> String {
    let mut table = TextTable::new(&["BANNED", "FOR", "CONNECTIONS", "REQUESTS", "BY", "WHY"]);
    let mut row = |ban: &ClientBan| {
        let BanRecord { network, until_s, why } = &ban.record;
        let left = until_s.map_or("-".to_owned(), |until_s| BanPeriod(until_s - now_s).to_string());
        let [connections, requests] = RefusedAt::ALL.map(|at| ban.refused(at));
        let (named, origin) = (Named(*network), SaidBy(&ban.origin));
        table.row(&[&named, &left, &connections, &requests, &origin, why]);
    };
    let (of_files, by_command): (Vec<_>, Vec<_>) =
        bans.holding(now_s).partition(|ban| ban.is_of_file());
    by_command.into_iter().for_each(&mut row);
    let refused = |ban: &ClientBan| RefusedAt::ALL.map(|at| ban.refused(at)).iter().sum::<u64>();
    let mut of_files: Vec<_> = of_files.into_iter().map(|ban| (refused(ban), ban)).collect();
    of_files.sort_by_key(|(refused, _)| u64::MAX - refused);
    let shown = if is_all { of_files.len() } else { MOST_SHOWN };
    of_files.iter().take(shown).for_each(|(_, ban)| row(ban));
    if table.is_empty() {
        return "nobody is banned\n".to_owned();
    }
    let left = of_files.len().saturating_sub(shown);
    let more = match left {
        0 => String::new(),
        left => format!("and {left} more of files, which have refused less: --all shows them\n"),
    };
    format!("{table}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(networks: &[&str]) -> BanOrder {
        let networks = networks.iter().map(|text| banned_network(text).unwrap()).collect();
        let period = Duration::from_secs(3600);
        BanOrder { networks, period, is_forced: false, why: "a flood".to_owned() }
    }

    fn asked(order: &BanOrder) -> String {
        order.to_string().strip_prefix("policy ban\n").unwrap().to_owned()
    }

    fn spared() -> SparedClients {
        let mut spared = SparedClients::default();
        let proxies = CidrBlock::parse("10.0.0.0/24").unwrap();
        spared.add(proxies, SparedAs::TrustedProxy);
        spared.add(CidrBlock::parse("2001:db8::7").unwrap(), SparedAs::Administrator);
        spared
    }

    #[test]
    fn an_order_is_read_as_it_is_written() {
        let order = BanOrder { is_forced: true, ..order(&["192.0.2.1", "2001:db8::1"]) };
        assert_eq!(BanOrder::parse(&asked(&order)), Ok(order));
        assert_eq!(BanOrder::parse(""), Err(BanError::Form));
        assert_eq!(BanOrder::parse("60\nwhy"), Err(BanError::Form));
        assert_eq!(BanOrder::parse("x\nwhy\n192.0.2.1"), Err(BanError::Form));
        assert!(matches!(BanOrder::parse("60\n\na.example"), Err(BanError::Network(..))));
    }

    #[test]
    fn bans_are_set_shown_and_lifted() {
        let mut bans = BanList::default();
        let answer = ban(&mut bans, &asked(&order(&["192.0.2.1", "10.0.0.0/8"])), &spared(), 0);
        assert_eq!(
            answer.text,
            "192.0.2.1 is banned for 1h, until 1970-01-01T01:00:00Z: a flood\n\
             10.0.0.0/8 is banned for 1h, until 1970-01-01T01:00:00Z: a flood\n\
             but not 10.0.0.0/24 in it, a trusted proxy (trusted_proxies)\n"
        );
        let again = BanOrder { period: Duration::from_secs(90), ..order(&["192.0.2.1"]) };
        let answer = ban(&mut bans, &asked(&again), &spared(), 10);
        let said = "192.0.2.1 is banned for 1m30s, until 1970-01-01T00:01:40Z: a flood \
                    (before: until 1970-01-01T01:00:00Z)\n";
        assert_eq!((answer.code, answer.text.as_str()), (0, said));
        assert_eq!(
            show(&bans, false, 40),
            "BANNED         FOR  CONNECTIONS  REQUESTS       BY      WHY\n\
             192.0.2.1       1m            0         0  command  a flood\n\
             10.0.0.0/8  59m20s            0         0  command  a flood\n"
        );
        let text = |answer: CommandAnswer| answer.text;
        assert_eq!(
            text(unban(&mut bans, "10.1.2.3", 40)),
            "forebay policy: 10.1.2.3 is banned as part of 10.0.0.0/8: lift that with forebay policy unban \
             10.0.0.0/8; nothing has changed\n"
        );
        assert_eq!(
            text(unban(&mut bans, "10.0.0.0/8", 40)),
            "10.0.0.0/8 is not banned any more; its ban has refused 0 connections and 0 requests\n"
        );
        assert!(text(unban(&mut bans, "10.0.0.0/8", 40)).contains("10.0.0.0/8 is not banned; "));
        assert!(text(unban(&mut bans, "192.0.2.1", 200)).contains("192.0.2.1 is not banned; "));
        assert_eq!(show(&bans, false, 200), "nobody is banned\n");
    }

    #[test]
    fn what_a_file_says_is_not_lifted() {
        let mut bans = BanList::default();
        let record = BanRecord::new(banned_network("192.0.2.0/24").unwrap(), None, "");
        bans.set_files(vec![(record, BanOrigin::File { file: "/etc/bad".into(), line: 7 })]);
        let said = unban(&mut bans, "192.0.2.0/24", 0).text;
        assert!(said.contains("192.0.2.0/24 is banned by /etc/bad:7: take it out there"), "{said}");
        ban(&mut bans, &asked(&order(&["192.0.2.0/25"])), &spared(), 0);
        let said = unban(&mut bans, "192.0.2.0/25", 0).text;
        assert!(said.ends_with("\nbut 192.0.2.0/24 is banned yet, by /etc/bad:7\n"), "{said}");
        assert!(show(&bans, false, 0).contains("/etc/bad:7"));
    }

    #[test]
    fn who_is_spared_and_what_is_too_large_is_not_banned() {
        for (networks, said) in [
            (
                &["10.0.0.7"][..],
                "10.0.0.7 is a trusted proxy (trusted_proxies), and is never banned",
            ),
            (&["192.0.2.1", "10.0.0.128/25"], "10.0.0.128/25 is a trusted proxy"),
            (
                &["2001:db8::1"],
                "2001:db8::/64 is an administrator (admin.allow), and is never banned",
            ),
            (&["0.0.0.0/7"], "0.0.0.0/7 is more than /8"),
            (&["::/0"], "::/0 is more than /8"),
        ] {
            let mut bans = BanList::default();
            let answer = ban(&mut bans, &asked(&order(networks)), &spared(), 0);
            assert!(answer.text.starts_with(&format!("forebay policy: {said}")), "{}", answer.text);
            assert_ne!(answer.code, 0);
            assert_eq!(bans.records(), [], "all or nothing");
        }
        let mut bans = BanList::default();
        let forced = BanOrder { is_forced: true, ..order(&["0.0.0.0/0"]) };
        assert_eq!(ban(&mut bans, &asked(&forced), &spared(), 0).code, 0);
        let no_time = BanOrder { period: Duration::ZERO, ..order(&["192.0.2.1"]) };
        assert!(ban(&mut bans, &asked(&no_time), &spared(), 0).text.contains("a second at least"));
    }

    #[test]
    fn time_is_said_in_two_units() {
        for (seconds, said) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (5400, "1h30m"), (86_400, "1d"), (90_061, "1d1h")]
        {
            assert_eq!(BanPeriod(seconds).to_string(), said);
        }
    }
}
