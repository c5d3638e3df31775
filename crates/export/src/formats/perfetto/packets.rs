//! The packets of a trace. All belong to one sequence, with one clock and one table of names.

use std::io::{self, Write};

use model::profile::Profile;

use super::interned::Interned;
use crate::formats::proto::Message;

const SEQUENCE: u64 = 1;
/// The clock of the packets: nanoseconds since the start of the recording, so that times take few bytes. Numbers from 64 on
/// are local to a sequence.
const CLOCK: u64 = 64;
/// `BUILTIN_CLOCK_REALTIME`
const REALTIME: u64 = 1;
/// `BUILTIN_CLOCK_MONOTONIC`
const MONOTONIC: u64 = 3;
/// `SEQ_INCREMENTAL_STATE_CLEARED`
const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`
const NEEDS_STATE: u64 = 2;

/// Types of track events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Where an event is, and its name.
pub(super) struct Point {
    pub time: u64,
    pub track: u64,
    pub name: u64,
}

/// Writes packets.
pub(super) struct Packets<'a> {
    out: &'a mut dyn Write,
    origin: u64,
    message: Message,
}

impl<'a> Packets<'a> {
    /// Writes the clocks and the defaults of the sequence.
    pub fn new(profile: &Profile, out: &'a mut dyn Write) -> io::Result<Self> {
        let start = profile.start.as_ref();
        let origin = start.map_or(0, |start| start.time);
        let mut packets = Self { out, origin, message: Message::default() };
        packets.write(|packet| {
            packet.number(10, SEQUENCE);
            packet.number(13, STATE_CLEARED);
            packet.message(59, |defaults| {
                defaults.number(58, CLOCK);
                defaults.message(12, |perf| {
                    perf.message(1, |timebase| {
                        timebase.number(2, start.map_or(0, |start| start.frequency.into()));
                        // SW_CPU_CLOCK: it counts nanoseconds.
                        timebase.number(4, 1);
                    });
                });
            });
        })?;
        packets.write(|packet| {
            packet.number(10, SEQUENCE);
            // Its own time is that of the clock that viewers show.
            packet.number(8, origin);
            packet.number(58, MONOTONIC);
            packet.message(6, |snapshot| {
                let wall_clock = start.map_or(0, |start| start.wall_clock);
                for (id, time) in [(CLOCK, 0), (MONOTONIC, origin), (REALTIME, wall_clock)] {
                    snapshot.message(1, |clock| {
                        clock.number(1, id);
                        clock.number(2, time);
                    });
                }
                snapshot.number(2, MONOTONIC);
            });
        })?;
        Ok(packets)
    }

    /// Returns a time as nanoseconds since the start; 0 for earlier ones.
    pub fn relative(&self, time: u64) -> u64 {
        time.saturating_sub(self.origin)
    }

    /// Writes a track.
    pub fn track(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.write(|packet| {
            packet.number(10, SEQUENCE);
            packet.message(60, fill);
        })
    }

    /// Writes a slice; without an end it lasts to the end of the trace.
    pub fn slice(
        &mut self,
        interned: &mut Interned<'_>,
        point: Point,
        end: Option<u64>,
        details: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        let track = point.track;
        self.event(interned, BEGIN, point, details)?;
        let Some(end) = end else { return Ok(()) };
        let time = self.relative(end);
        self.write(|packet| {
            packet.number(8, time);
            packet.number(10, SEQUENCE);
            packet.message(11, |event| {
                event.number(9, END);
                event.number(11, track);
            });
        })
    }

    /// Writes an instant.
    pub fn instant(
        &mut self,
        interned: &mut Interned<'_>,
        point: Point,
        details: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        self.event(interned, INSTANT, point, details)
    }

    /// Writes the value of a counter from a time on.
    pub fn counter(&mut self, time: u64, track: u64, value: f64) -> io::Result<()> {
        let time = self.relative(time);
        self.write(|packet| {
            packet.number(8, time);
            packet.number(10, SEQUENCE);
            packet.message(11, |event| {
                event.number(9, COUNTER);
                event.number(11, track);
                event.fixed(44, value.to_bits());
            });
        })
    }

    fn event(
        &mut self,
        interned: &mut Interned<'_>,
        kind: u64,
        point: Point,
        details: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        self.with_state(interned, point.time, |packet| {
            packet.message(11, |event| {
                event.number(9, kind);
                event.number(10, point.name);
                event.number(11, point.track);
                details(event);
            });
        })
    }

    /// Writes a packet that refers to interned data, and the data that are new.
    pub fn with_state(
        &mut self,
        interned: &mut Interned<'_>,
        time: u64,
        fill: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        let time = self.relative(time);
        let new = interned.new_data();
        self.write(|packet| {
            packet.number(8, time);
            packet.number(10, SEQUENCE);
            packet.number(13, NEEDS_STATE);
            if !new.bytes().is_empty() {
                packet.embed(12, new);
            }
            fill(packet);
        })?;
        new.clear();
        Ok(())
    }

    fn write(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.message.clear();
        self.message.message(1, fill);
        self.out.write_all(self.message.bytes())
    }

    /// Ends the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
