//! The gasless relayer.
pub mod budget;
pub mod classify;
pub mod clock;
pub mod faults;
pub mod fees;
pub mod gas;
pub mod journal;
pub mod keys;
pub mod outcome;
pub mod sender;
pub mod settings;
