//! The flame trees of one profile, shared by the outputs and the summary. Each is built once.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use model::profile::Profile;

use crate::flame::{EventView, Flame, Line, View};

/// A profile and its flame trees, which are built on first use.
pub struct Flames<'a> {
    /// The profile.
    pub profile: &'a Profile,
    cpu: OnceCell<Rc<Flame>>,
    gpu: OnceCell<Rc<Flame>>,
    both: OnceCell<Rc<Flame>>,
    events: RefCell<Vec<(EventView, Rc<Flame>)>>,
}

impl<'a> Flames<'a> {
    /// Builds nothing yet.
    pub fn new(profile: &'a Profile) -> Self {
        Self { profile, cpu: OnceCell::new(), gpu: OnceCell::new(), both: OnceCell::new(), events: RefCell::default() }
    }

    /// Returns the tree of a view.
    pub fn of(&self, view: View) -> Rc<Flame> {
        match view {
            View { event: Some(event), .. } => self.event(event),
            View { cpu: true, gpu: true, .. } => {
                self.both.get_or_init(|| Rc::new(merged(&self.cpu(), &self.gpu()))).clone()
            }
            View { cpu: true, gpu: false, .. } => self.cpu(),
            View { cpu: false, gpu: true, .. } => self.gpu(),
            View { cpu: false, gpu: false, .. } => Rc::default(),
        }
    }

    /// Returns the tree of CPU samples.
    pub fn cpu(&self) -> Rc<Flame> {
        self.cpu.get_or_init(|| Rc::new(Flame::of_cpu(self.profile))).clone()
    }

    /// Returns the tree of GPU work, under the stacks that launched it.
    pub fn gpu(&self) -> Rc<Flame> {
        self.gpu.get_or_init(|| Rc::new(Flame::of_gpu(self.profile))).clone()
    }

    /// Returns the tree of a counted event.
    pub fn event(&self, event: EventView) -> Rc<Flame> {
        let mut built = self.events.borrow_mut();
        if let Some((_, flame)) = built.iter().find(|(known, _)| *known == event) {
            return flame.clone();
        }
        let flame = Rc::new(Flame::of_event(self.profile, event));
        built.push((event, flame.clone()));
        flame
    }
}

/// Merges both parts into one tree.
fn merged(cpu: &Flame, gpu: &Flame) -> Flame {
    let mut lines: BTreeMap<_, _> = cpu.lines.iter().map(|line| (line.frames.clone(), line.weight)).collect();
    for line in &gpu.lines {
        lines.entry(line.frames.clone()).or_default().add(line.weight);
    }
    let mut families = cpu.families.clone();
    for (name, family) in &gpu.families {
        families.entry(name.clone()).and_modify(|known| *known = (*family).min(*known)).or_insert(*family);
    }
    let lines = lines.into_iter().map(|(frames, weight)| Line { frames, weight }).collect();
    Flame { lines, families, own: cpu.own, measure: cpu.measure, launches: gpu.launches.clone() }
}
