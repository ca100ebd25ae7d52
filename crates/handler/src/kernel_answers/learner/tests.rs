//! The learner over a real content: what it has the kernel learn, lets go of, and refuses.

use super::*;
use crate::kernel_answers::AnswerKey;
use forebay_conn::{Job as _, Out, Peer, ProcessOutcome, Reply, Request, TurnTime};
use forebay_http::date;
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_http::path::NormalPath;
use forebay_metrics::{Local, Off};
use forebay_site::{Content, ContentSettings, Site};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

const NOW_MS: u64 = 1_000_000;

fn settings(is_hindered: bool) -> LearnerSettings {
    LearnerSettings {
        listeners: vec![listener()],
        hindered: vec![is_hindered],
        requests: 1000,
        most_answers: 2,
        most_bytes: 10_000,
        content: 0,
    }
}

fn listener() -> SocketAddr {
    "127.0.0.1:80".parse().unwrap()
}

/// The answers that the kernel would have, by number.
#[derive(Default)]
struct KernelDouble(Mutex<HashMap<u32, AnswerKey>>);

impl KernelDouble {
    fn paths(&self) -> Vec<String> {
        let kept = self.0.lock().unwrap();
        let mut paths: Vec<_> =
            kept.values().map(|key| String::from_utf8_lossy(&key.path).into_owned()).collect();
        paths.sort();
        paths
    }
}

impl AnswerKeeper for KernelDouble {
    fn keep(&self, key: &AnswerKey, _: &FixedAnswer, requests: u32) -> Result<u32, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        assert_eq!(requests, 1000);
        if &*key.path == b"/refused" {
            return Err("no".to_owned());
        }
        let number = NUMBER.fetch_add(1, Relaxed);
        let mut kept = self.0.lock().unwrap();
        assert!(kept.values().all(|known| known != key), "it has it");
        kept.insert(number, key.clone());
        Ok(number)
    }

    fn let_go(&self, key: &AnswerKey) {
        self.0.lock().unwrap().retain(|_, known| known != key);
    }

    fn let_all_go(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// A directory with files, and a loop that answers requests from it.
struct LearningLoop {
    folder: PathBuf,
    site: Site,
    kept: Arc<KernelDouble>,
    learner: Arc<Learner>,
}

impl Drop for LearningLoop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl LearningLoop {
    fn new(files: &[&str]) -> LearningLoop {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("forebay-learner-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for file in files {
            write(&folder, file, file);
        }
        let content = Content::open(ContentSettings::new(&folder), |_| {}).unwrap();
        let now = TurnTime { monotonic_ms: NOW_MS, unix_ms: 0 };
        let mut site = Site::new(content, Arc::default(), now, 64);
        site.note_hot(true);
        let kept = Arc::<KernelDouble>::default();
        let keeper: Arc<dyn AnswerKeeper> = Arc::clone(&kept) as _;
        let learner = Learner::new(keeper, settings(false));
        LearningLoop { folder, site, kept, learner }
    }

    /// Answers a request once.
    fn answer(&mut self, path: &str) -> Vec<u8> {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut lines = Lines::new();
        let Ok(ParsedHead::Complete(head)) =
            Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default())
        else {
            panic!("no head");
        };
        let address = "127.0.0.1:80".parse().unwrap();
        let (peer, normal) = (Peer::new(address, address), NormalPath::default());
        let request = Request::new(&head, &peer, &normal);
        let (mut out, date) = (Out::default(), date::format(784_111_777));
        let mut done = None;
        loop {
            let mut reply = Reply::new(&mut out, &date, true);
            match self.site.process(&request, || address.ip(), done.take(), &mut reply) {
                ProcessOutcome::Job(job) => done = Some(job.run(&Local::default(), &mut Off)),
                _ => return out.bytes,
            }
        }
    }

    /// Asks until the answer is offered, and offers it.
    fn ask(&mut self, path: &str) {
        for _ in 0..130 {
            self.answer(path);
            if let Some(hot) = self.site.take_hot() {
                let key = AnswerKey::of(listener(), b"a", path.as_bytes(), None).unwrap();
                return self.learner.offer(key, hot, NOW_MS);
            }
        }
        panic!("{path} is not asked for again and again");
    }

    fn refused(&self) -> Vec<(String, NotLearned)> {
        let refused = self.learner.report().refused.into_iter();
        refused.map(|(key, why)| (key.to_string(), why)).collect()
    }
}

/// Writes a file that was last changed long ago.
fn write(folder: &std::path::Path, name: &str, text: &str) {
    let new = folder.join(".new");
    fs::write(&new, text).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    fs::File::options().write(true).open(&new).unwrap().set_modified(long_ago).unwrap();
    fs::rename(new, folder.join(name)).unwrap();
}

#[test]
fn what_is_asked_for_least_makes_room() {
    let mut event = LearningLoop::new(&["a", "b", "c", "refused"]);
    event.ask("/refused");
    assert_eq!(event.refused(), [("a/refused".to_owned(), NotLearned::Kernel("no".to_owned()))]);
    event.ask("/a");
    event.ask("/b");
    assert_eq!(event.kept.paths(), ["/a", "/b"]);
    // another loop offers the same answer, which is known
    event.ask("/b");
    let numbers: Vec<u32> = event.kept.0.lock().unwrap().keys().copied().collect();
    numbers.iter().for_each(|number| event.learner.given(*number));
    event.learner.look(NOW_MS);
    event.ask("/c");
    assert_eq!(event.kept.paths(), ["/a", "/b"], "both were asked for in this period");
    assert_eq!(event.refused()[0], ("a/c".to_owned(), NotLearned::Full));
    event.learner.look(NOW_MS + PERIOD_MS);
    let of_b = *event.kept.0.lock().unwrap().iter().find(|(_, key)| &*key.path == b"/b").unwrap().0;
    event.learner.given(of_b);
    event.learner.look(NOW_MS + 2 * PERIOD_MS);
    event.ask("/c");
    assert_eq!(event.kept.paths(), ["/b", "/c"]);
    assert_eq!(event.refused().len(), 1);
    let rows = event.learner.report().learned;
    assert_eq!((rows[0].key.to_string(), rows[0].given), ("a/b".to_owned(), 2));
    event.learner.close();
    event.ask("/a");
    assert_eq!((event.kept.paths(), event.learner.report().learned), (vec![], vec![]));
}

#[test]
fn the_kernel_lets_go_before_the_cache_answers_with_something_else() {
    let mut event = LearningLoop::new(&["a"]);
    event.ask("/a");
    write(&event.folder, "a", "changed");
    let start = Instant::now();
    while !event.answer("/a").ends_with(b"changed") {
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    // at once, without any delay
    assert!(event.kept.paths().is_empty());
    event.ask("/a");
    assert_eq!(event.kept.paths(), ["/a"]);
}

#[test]
fn what_the_cache_would_look_at_again_is_let_go_of() {
    let mut event = LearningLoop::new(&["a"]);
    event.ask("/a");
    let ten_intervals = 10_000;
    event.learner.look(NOW_MS + ten_intervals - LEAD_MS - 1);
    assert_eq!(event.kept.paths(), ["/a"]);
    event.learner.look(NOW_MS + ten_intervals - LEAD_MS);
    assert!(event.kept.paths().is_empty());
}

#[test]
fn a_site_whose_settings_stand_in_the_way_is_not_learned() {
    let mut event = LearningLoop::new(&["a"]);
    let keeper: Arc<dyn AnswerKeeper> = Arc::clone(&event.kept) as _;
    event.learner = Learner::new(keeper, settings(true));
    event.ask("/a");
    assert_eq!(event.refused(), [("a/a".to_owned(), NotLearned::Site)]);
}

#[test]
fn a_listener_is_found_by_where_it_is_bound() {
    let event = LearningLoop::new(&[]);
    let keeper: Arc<dyn AnswerKeeper> = Arc::clone(&event.kept) as _;
    let listeners = ["127.0.0.1:80", "0.0.0.0:81", "[::]:82"].map(|text| text.parse().unwrap());
    let settings = LearnerSettings { listeners: listeners.into(), ..settings(false) };
    let learner = Learner::new(keeper, settings);
    let of = |text: &str| learner.listener_of(text.parse().unwrap()).map(|at| at.to_string());
    assert_eq!(of("127.0.0.1:80").as_deref(), Some("127.0.0.1:80"));
    assert_eq!(of("192.0.2.1:81").as_deref(), Some("0.0.0.0:81"));
    assert_eq!(of("0.0.0.0:81").as_deref(), Some("0.0.0.0:81"));
    assert_eq!(of("[2001:db8::1]:82").as_deref(), Some("[::]:82"));
    assert_eq!((of("192.0.2.1:80"), of("192.0.2.1:82")), (None, None));
}
