//! Reads the events of a recording for writers of timelines: joins GPU work and launches, and selects what the view shows.

use std::io;

use analysis::{Events, flame_tree::View};
use model::{
    causes::{Cause, Causes, Joined},
    event::{Call, Dump, Energy, Event, Gpm, KernelName, Pause, PmSamples, Range, Sample, Switch, Sync, Wait},
};

use crate::launch_lengths::{LaunchLengths, Launched};

/// What a writer of a timeline receives.
pub(crate) enum Moment<'a> {
    /// Any event, before what it leads to.
    Seen(&'a Event),
    /// A kernel has a name from now on.
    KernelName(&'a KernelName),
    /// A launch. Its work may follow or have preceded it; the thread's next launch has begun.
    Launch(&'a Launched),
    /// GPU work, with its launch if it was seen.
    Ran(&'a Joined<'a>),
    /// The host waited for the GPU.
    Sync(&'a Sync),
    /// Another client of CUPTI was active: there are no records of the GPU's work.
    Pause(&'a Pause),
    /// A reading of a GPU's energy counter.
    Energy(&'a Energy),
    /// What a GPU's performance monitor measured.
    Gpm(&'a Gpm),
    PmSamples(&'a PmSamples),
    /// A CPU sample.
    Sample(&'a Sample),
    /// A traced call.
    Call(&'a Call),
    /// A thread was off the CPU, in a trace.
    Switch(&'a Switch),
    /// A thread was off the CPU, in a recording.
    Wait(&'a Wait),
    /// An NVTX range or mark.
    Range(&'a Range),
    /// Why a recording of the recent past was written.
    Dump(&'a Dump),
}

/// Passes everything to `write`, until it fails.
pub(crate) fn each_moment(
    view: View,
    events: Events<'_>,
    mut write: impl FnMut(Moment<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut causes = Causes::default();
    let mut lengths = LaunchLengths::default();
    for event in events {
        write(Moment::Seen(&event))?;
        let mut result = Ok(());
        let mut on = |cause: Cause<'_>| {
            // A pending launch was written when it arrived.
            if let (Cause::Ran(joined), Ok(())) = (cause, &result) {
                result = write(Moment::Ran(&joined));
            }
        };
        match &event {
            Event::Launch(launch) if view.gpu => {
                causes.launch(launch, &mut on);
                result?;
                if let Some(last) = lengths.launch(launch) {
                    write(Moment::Launch(&last))?;
                }
            }
            Event::Returned(returned) => lengths.returned(returned),
            Event::Activity(activity) if view.gpu => {
                causes.activity(activity, &mut on);
                result?;
            }
            Event::Sync(sync) if view.gpu => write(Moment::Sync(sync))?,
            Event::Pause(pause) if view.gpu => write(Moment::Pause(pause))?,
            Event::Energy(reading) if view.gpu => write(Moment::Energy(reading))?,
            Event::Gpm(gpm) if view.gpu => write(Moment::Gpm(gpm))?,
            Event::PmSamples(samples) if view.gpu => write(Moment::PmSamples(samples))?,
            Event::Sample(sample) if view.cpu => write(Moment::Sample(sample))?,
            Event::KernelName(name) => write(Moment::KernelName(name))?,
            Event::Call(call) if view.calls.shows(call) => write(Moment::Call(call))?,
            Event::Call(_) => {}
            Event::Switch(switch) => write(Moment::Switch(switch))?,
            Event::Wait(wait) if view.waits => write(Moment::Wait(wait))?,
            Event::Range(range) => write(Moment::Range(range))?,
            Event::Dump(dump) => write(Moment::Dump(dump))?,
            other => causes.note(other),
        }
    }
    let mut result = Ok(());
    causes.finish(|cause| {
        if let (Cause::Ran(joined), Ok(())) = (cause, &result) {
            result = write(Moment::Ran(&joined));
        }
    });
    result?;
    for last in lengths.finish() {
        write(Moment::Launch(&last))?;
    }
    Ok(())
}
