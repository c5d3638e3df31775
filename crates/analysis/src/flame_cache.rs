//! The flame trees of one profile, shared by the outputs and the summary. Each is built once.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use model::profile::Profile;

use crate::{
    flame_tree::{EventView, Flame, Line, Measure, MemoryView, View, Weight},
    waits,
};

/// A profile and its flame trees, which are built on first use.
pub struct Flames<'a> {
    /// The profile.
    pub profile: &'a Profile,
    built: RefCell<Vec<(Part, Rc<Flame>)>>,
}

/// What a tree shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Cpu,
    Gpu,
    Stalls,
    Idle,
    Memory(MemoryView),
    Event(EventView),
    Several(View),
}

impl<'a> Flames<'a> {
    /// Builds nothing yet.
    pub fn new(profile: &'a Profile) -> Self {
        Self { profile, built: RefCell::default() }
    }

    /// Returns the tree of a view.
    pub fn of(&self, view: View) -> Rc<Flame> {
        if let Some(event) = view.event {
            return self.event(event);
        }
        if view.idle {
            return self.get(Part::Idle, || Flame::of_idle(self.profile));
        }
        if let Some(memory) = view.memory {
            return self.memory(memory);
        }
        let mut parts = Vec::new();
        parts.extend(view.cpu.then(|| self.cpu()));
        parts.extend(view.gpu.then(|| self.stalls()));
        let waits = waits::counter(self.profile).filter(|_| view.waits);
        parts.extend(waits.map(|counter| self.event(EventView { counter, by_count: false })));
        match &parts[..] {
            [] => Rc::default(),
            [part] => part.clone(),
            _ => self.get(Part::Several(view), || merged(&parts)),
        }
    }

    /// Returns the tree of CPU samples.
    pub fn cpu(&self) -> Rc<Flame> {
        self.get(Part::Cpu, || Flame::of_cpu(self.profile))
    }

    /// Returns the tree of GPU work, under the stacks that launched it.
    pub fn gpu(&self) -> Rc<Flame> {
        self.get(Part::Gpu, || Flame::of_gpu(self.profile))
    }

    /// Returns the tree of GPU work, with lines and stall reasons below the kernels that were sampled.
    pub fn stalls(&self) -> Rc<Flame> {
        match self.profile.stalls.samples.is_empty() {
            true => self.gpu(),
            false => self.get(Part::Stalls, || Flame::of_stalls(self.profile)),
        }
    }

    /// Returns the tree of GPU memory.
    pub fn memory(&self, view: MemoryView) -> Rc<Flame> {
        self.get(Part::Memory(view), || Flame::of_memory(self.profile, view))
    }

    /// Returns the tree of a counted event.
    pub fn event(&self, event: EventView) -> Rc<Flame> {
        self.get(Part::Event(event), || Flame::of_event(self.profile, event))
    }

    fn get(&self, part: Part, build: impl FnOnce() -> Flame) -> Rc<Flame> {
        if let Some((_, flame)) = self.built.borrow().iter().find(|(known, _)| *known == part) {
            return flame.clone();
        }
        let flame = Rc::new(build());
        self.built.borrow_mut().push((part, flame.clone()));
        flame
    }
}

/// Merges trees of time into one.
fn merged(parts: &[Rc<Flame>]) -> Flame {
    let mut lines = BTreeMap::<_, Weight>::new();
    let mut families = BTreeMap::new();
    let mut own = Weight::default();
    // Only GPU work has launches, and only one part is GPU work.
    let mut launches = BTreeMap::new();
    for part in parts {
        launches.extend(part.launches.clone());
        for line in &part.lines {
            lines.entry(line.frames.clone()).or_default().add(line.weight);
        }
        for (name, family) in &part.families {
            families.entry(name.clone()).and_modify(|known| *known = (*family).min(*known)).or_insert(*family);
        }
        own.add(part.own);
    }
    let lines = lines.into_iter().map(|(frames, weight)| Line { frames, weight }).collect();
    Flame { lines, families, own, measure: Measure::Time, launches }
}
