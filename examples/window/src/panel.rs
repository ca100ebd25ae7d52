//! The state of the program: lamps, and the subscribers that learn of changes.

use forebay::{ChannelError, Receiver, Sender, channel};

/// How many lamps there are.
pub const LAMPS: usize = 8;

/// The lamps.
#[derive(Default)]
pub struct LampPanel {
    lamps: [bool; LAMPS],
    changes: u64,
    frames: u64,
    watchers: Vec<Sender<()>>,
}

impl LampPanel {
    /// The state of each lamp: on or off.
    pub fn lamps(&self) -> [bool; LAMPS] {
        self.lamps
    }

    /// How often a lamp was switched.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Switches a lamp. Returns its new state, or `None` if there is none with this number.
    pub fn switch(&mut self, lamp: usize, on: bool) -> Option<bool> {
        let place = self.lamps.get_mut(lamp)?;
        if *place != on {
            *place = on;
            self.changes += 1;
            // a watcher with a change still in its channel will look at the whole state then
            self.watchers.retain(|watcher| watcher.try_send(()) != Err(ChannelError::Closed));
        }
        Some(on)
    }

    /// Counts a picture that the window draws. Returns its number.
    pub fn count_frame(&mut self) -> u64 {
        self.frames += 1;
        self.frames
    }

    /// A receiver to wait at for the next change. A change that comes while one is not yet received adds
    /// nothing.
    pub fn watch(&mut self) -> Receiver<()> {
        let (sender, receiver) = channel(1);
        self.watchers.push(sender);
        receiver
    }

    /// The state as the page reads it.
    pub fn to_json(&self) -> String {
        let LampPanel { lamps, changes, frames, .. } = self;
        format!("{{\"lamps\":{lamps:?},\"changes\":{changes},\"frames\":{frames}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_is_told_once_of_changes_that_wait_and_leaves_by_itself() {
        let mut panel = LampPanel::default();
        let watcher = panel.watch();
        assert_eq!(panel.switch(0, false), Some(false));
        assert!(watcher.try_recv().is_err(), "nothing has changed");
        panel.switch(0, true);
        panel.switch(1, true);
        assert!(watcher.try_recv().is_ok() && watcher.try_recv().is_err());
        drop(watcher);
        panel.switch(1, false);
        assert!(panel.watchers.is_empty());
        assert_eq!(
            panel.to_json(),
            "{\"lamps\":[true, false, false, false, false, false, false, false],\"changes\":3,\"frames\":0}"
        );
    }
}
