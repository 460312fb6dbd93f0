//! The daily gas budget as arithmetic: a window that opens with its first use and lasts 24 hours.
//!
//! `settled` was paid; `reserved` is what transactions in flight, and those of nonces that were given up in
//! the last 24 hours, may still cost. Nothing is reserved beyond the limit, so their sum stays within it,
//! except for what a reorganisation undoes. `store` persists both; time is an argument.

pub mod share;

/// Length of a window (service.md section 8).
pub const WINDOW_SECONDS: u64 = 24 * 60 * 60;

/// The current window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Time at which it opened, unix seconds; `None` while nothing was used.
    pub opened_at: Option<u64>,
    /// The sum of what was paid in it, wei.
    pub settled_wei: u128,
}

impl Window {
    /// Returns the window at `now`: itself, or a new one if it is over.
    pub const fn at(self, now: u64) -> Self {
        match self.opened_at {
            Some(opened) if now >= opened.saturating_add(WINDOW_SECONDS) => {
                Self { opened_at: None, settled_wei: 0 }
            }
            // The clock was set back: the window must still close 24 hours from now.
            Some(opened) if now < opened => Self { opened_at: Some(now), settled_wei: self.settled_wei },
            _ => self,
        }
    }

    /// Returns the window after something was used in it at `now`.
    pub fn used(self, now: u64, settled_wei: u128) -> Self {
        let current = self.at(now);
        let settled_wei = current.settled_wei.saturating_add(settled_wei);
        Self { opened_at: current.opened_at.or(Some(now)), settled_wei }
    }

    /// Returns the window after a reservation was given back: closed if nothing else is in it.
    pub const fn unused(self, still_reserved_wei: u128) -> Self {
        if self.settled_wei == 0 && still_reserved_wei == 0 {
            return Self { opened_at: None, settled_wei: 0 };
        }
        self
    }
}

/// The budget at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The limit of a window, wei.
    pub limit_wei: u128,
    /// The window at that moment.
    pub window: Window,
    /// Reserved for transactions in flight, wei.
    pub reserved_wei: u128,
}

impl Budget {
    /// Returns what is paid and reserved together, wei.
    pub const fn used_wei(&self) -> u128 {
        self.window.settled_wei.saturating_add(self.reserved_wei)
    }

    /// Returns the unused rest, wei.
    pub const fn remaining_wei(&self) -> u128 {
        self.limit_wei.saturating_sub(self.used_wei())
    }

    /// Returns whether `wei` more can be reserved.
    pub const fn allows(&self, wei: u128) -> bool {
        wei <= self.remaining_wei()
    }

    /// Returns the end of the window, unix seconds; `None` while nothing is used.
    pub fn resets_at(&self) -> Option<u64> {
        self.window.opened_at.map(|opened| opened.saturating_add(WINDOW_SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_lasts_24_hours_from_first_use_and_reserved_counts_as_used() {
        let window = Window::default().used(1_000, 5).used(50_000, 7);
        assert_eq!(window, Window { opened_at: Some(1_000), settled_wei: 12 });
        let end = 1_000 + WINDOW_SECONDS;
        assert_eq!(window.at(end - 1).settled_wei, 12);
        assert_eq!(window.at(end), Window::default());
        assert_eq!(window.used(end - 1, 1), Window { opened_at: Some(1_000), settled_wei: 13 });
        assert_eq!(window.used(end + 5, 1), Window { opened_at: Some(end + 5), settled_wei: 1 });
        // A clock that was set back neither refills the budget nor freezes it.
        assert_eq!(window.at(400), Window { opened_at: Some(400), settled_wei: 12 });
        assert_eq!(window.used(400, 2).at(400 + WINDOW_SECONDS), Window::default());
        // What was never used does not open a window.
        let unused = Window::default().used(1_000, 0);
        assert_eq!((unused.unused(3), unused.unused(0)), (unused, Window::default()));
        assert_eq!(unused.used(1_001, 1).unused(0).opened_at, Some(1_000));
        let window = Window::default().used(0, 60);
        let budget = Budget { limit_wei: 100, window, reserved_wei: 30 };
        assert_eq!((budget.used_wei(), budget.remaining_wei()), (90, 10));
        assert!(budget.allows(10) && !budget.allows(11));
        let overdrawn = Budget { limit_wei: 50, ..budget };
        assert_eq!(overdrawn.remaining_wei(), 0);
        assert!(!overdrawn.allows(1));
    }
}
