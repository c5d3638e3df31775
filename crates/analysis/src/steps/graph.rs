//! The loops among the call sites of one function: which site is reached from which, and around what.
//!
//! ```text
//!   load   ─> forward ─> backward ─> step        sites of a call, in the order of their launches
//!    ^           ^──────────┘         │          the inner loop begins with `forward`
//!    └────────────────────────────────┘          the outer one with `load`
//! ```
//!
//! A set of sites that reach each other is a loop. It begins at its header. Without the ways to the header, what still
//! reaches itself are the loops inside.

use super::tree::Site;

/// How often a site was followed by another, and when that happened first.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Index of the site.
    pub from: usize,
    /// Index of the next site.
    pub to: usize,
    /// How often.
    pub count: u64,
    /// When first: a number that grows.
    pub first: u32,
}

/// The sites of one function call.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The sites.
    pub sites: Vec<Site>,
    /// When the function was first entered with each; `u32::MAX` for never.
    pub entered: Vec<u32>,
    /// Which follows which.
    pub edges: Vec<Edge>,
    /// The beginning of the program is known: it was not in a loop already.
    pub from_start: bool,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// The index of the site where iterations begin.
    pub header: usize,
    /// The indices of its sites, sorted.
    pub body: Vec<usize>,
}

/// The most loops in each other in one function.
const DEEPEST: usize = 8;

impl Graph {
    /// Returns all loops, outer before inner.
    pub fn loops(&self) -> Vec<Around> {
        let mut found = Vec::new();
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.sites.len()];
        for edge in &self.edges {
            next[edge.from].push(edge.to);
        }
        let mut is_header = vec![false; self.sites.len()];
        let mut parts: Vec<Vec<usize>> = vec![(0..self.sites.len()).collect()];
        for _ in 0..DEEPEST {
            let mut inner = Vec::new();
            for part in parts {
                for body in components(&part, &next, &is_header) {
                    let header = self.header(&body);
                    found.push(Around { header, body: body.clone() });
                    inner.push((header, body));
                }
            }
            if inner.is_empty() {
                break;
            }
            inner.iter().for_each(|(header, _)| is_header[*header] = true);
            parts = inner.into_iter().map(|(_, body)| body).collect();
        }
        found
    }

    /// Returns where the iterations of a loop begin: where it was first entered, unless that was in the middle of its code.
    fn header(&self, body: &[usize]) -> usize {
        let inside = |site: usize| body.binary_search(&site).is_ok();
        let mut entered: Vec<(u32, usize)> = body.iter().map(|site| (self.entered[*site], *site)).collect();
        let from_outside = self.edges.iter().filter(|edge| inside(edge.to) && !inside(edge.from));
        entered.extend(from_outside.map(|edge| (edge.first, edge.to)));
        let entry = entered.into_iter().min().map_or(body[0], |(_, site)| site);
        let Site { function, place, is_exact, .. } = self.sites[entry];
        // Compilers move code: addresses are a guess, where lines are evidence.
        if function == 0 || (is_exact && self.from_start) {
            return entry;
        }
        let places = || body.iter().copied().filter(|site| self.sites[*site].function == function);
        let by_place = |site: &usize| self.sites[*site].place;
        let Some(first) = places().min_by_key(by_place) else { return entry };
        if first == entry {
            return entry;
        }
        let into = self.edges.iter().filter(|edge| edge.to == entry && inside(edge.from));
        let (mut up, mut down) = (0_u64, 0_u64);
        for edge in into {
            let from = &self.sites[edge.from];
            let sum = if from.function == function && from.place < place { &mut down } else { &mut up };
            *sum = sum.saturating_add(edge.count);
        }
        if down.saturating_mul(4) > up { first } else { entry }
    }
}

/// Returns the sets of sites that reach each other, or themselves, without a way to a header. Each is sorted.
fn components(part: &[usize], next: &[Vec<usize>], is_header: &[bool]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let part_of: std::collections::HashMap<usize, usize> =
        part.iter().enumerate().map(|(at, site)| (*site, at)).collect();
    let ways = |at: usize| {
        let site: usize = part[at];
        next[site].iter().filter(|to| !is_header[**to]).filter_map(|to| part_of.get(to).copied())
    };
    let mut index = vec![NEW; part.len()];
    let mut low = vec![0; part.len()];
    let mut open = vec![false; part.len()];
    let (mut visited, mut path, mut found) = (0, Vec::new(), Vec::new());
    for root in 0..part.len() {
        if index[root] != NEW {
            continue;
        }
        let mut calls: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut enter = Some(root);
        loop {
            if let Some(at) = enter.take() {
                (index[at], low[at], open[at]) = (visited, visited, true);
                visited += 1;
                path.push(at);
                calls.push((at, ways(at).collect()));
            }
            let Some((at, rest)) = calls.last_mut() else { break };
            let at = *at;
            if let Some(to) = rest.pop() {
                if index[to] == NEW {
                    enter = Some(to);
                } else if open[to] {
                    low[at] = low[at].min(index[to]);
                }
                continue;
            }
            calls.pop();
            if let Some((caller, _)) = calls.last() {
                low[*caller] = low[*caller].min(low[at]);
            }
            if low[at] == index[at] {
                let mut component = Vec::new();
                while let Some(member) = path.pop() {
                    open[member] = false;
                    component.push(part[member]);
                    if member == at {
                        break;
                    }
                }
                let reaches_itself = component.len() > 1 || ways(at).any(|to| to == at);
                if reaches_itself {
                    component.sort_unstable();
                    found.push(component);
                }
            }
        }
    }
    found.sort_unstable();
    found
}
