//! `CUDA_VISIBLE_DEVICES`: which devices a process sees, and in which order.
//!
//! The rules of the CUDA programming guide: a list of indices or of UUIDs (`GPU-...`, `MIG-...`), which may be shortened as
//! long as they are unique. The list ends at the first invalid entry. A device that is listed twice makes none visible. Of
//! partitioned GPUs a process sees one instance: the one listed first, otherwise the first of all.

use super::hardware::Hardware;

/// Returns the devices that a process sees, on a machine with `gpus` GPUs of `instances` instances each (0: not
/// partitioned).
pub fn devices(gpus: u32, instances: u32, variable: Option<&str>) -> Vec<Hardware> {
    let whole = |gpu| Hardware { gpu, instance: None };
    let parts = |gpu| (0..instances).map(move |instance| Hardware { gpu, instance: Some(instance) });
    let all: Vec<Hardware> =
        if instances == 0 { (0..gpus).map(whole).collect() } else { (0..gpus).flat_map(parts).collect() };
    let Some(list) = variable else {
        return if instances == 0 { all } else { all[..1].to_vec() };
    };
    let mut visible = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let Some(device) = find(&all, entry) else { break };
        if visible.contains(&device) {
            return Vec::new();
        }
        visible.push(device);
        if instances > 0 {
            break;
        }
    }
    visible
}

fn find(all: &[Hardware], entry: &str) -> Option<Hardware> {
    if let Ok(index) = entry.parse::<usize>() {
        return all.get(index).copied();
    }
    if !entry.starts_with("GPU-") && !entry.starts_with("MIG-") {
        return None;
    }
    let mut matching = all.iter().filter(|device| device.name().starts_with(&entry.to_ascii_lowercase()));
    matching.next().copied().filter(|_| matching.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(variable: Option<&str>) -> Vec<u32> {
        devices(4, 0, variable).iter().map(|device| device.gpu).collect()
    }

    /// Indices choose and order the devices; the list ends at the first invalid entry; duplicates hide everything.
    #[test]
    fn indices_choose_devices() {
        assert_eq!(gpus(None), [0, 1, 2, 3]);
        assert_eq!(gpus(Some("2, 0")), [2, 0]);
        assert_eq!(gpus(Some("1,-1,2")), [1]);
        assert_eq!(gpus(Some("1,9,2")), [1]);
        assert_eq!(gpus(Some("1,1")), [] as [u32; 0]);
        assert_eq!(gpus(Some("")), [] as [u32; 0]);
    }

    /// A UUID chooses its device, whole or shortened, unless the prefix is ambiguous.
    #[test]
    fn uuids_choose_devices() {
        let third = Hardware { gpu: 2, instance: None }.name().replace("gpu-", "GPU-");
        assert_eq!(third, "GPU-77617270-7363-6f70-6520-73696d202002");
        assert_eq!(gpus(Some(&format!("{third},0"))), [2, 0]);
        assert_eq!(gpus(Some("GPU-7761")), [] as [u32; 0]);
        assert_eq!(devices(1, 0, Some("GPU-7761")), [Hardware { gpu: 0, instance: None }]);
    }

    /// A process sees one instance of a partitioned GPU.
    #[test]
    fn one_instance_is_visible() {
        let instance = |gpu, instance| vec![Hardware { gpu, instance: Some(instance) }];
        assert_eq!(devices(2, 2, None), instance(0, 0));
        assert_eq!(devices(2, 2, Some("MIG-77617270-7363-6f70-6520-73696d200101,0")), instance(1, 1));
    }
}
