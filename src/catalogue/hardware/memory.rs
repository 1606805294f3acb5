//! Memory that a process may use, from what is known of a product.

use super::read::family_of;
use super::rows::{GpuRow, MemoryRow};
use crate::planner::units::Bytes;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// Driver memory that processes cannot use, MiB, where only the total is known: the upper end of what the
/// catalogue's fully known parts of that size reserve (480 to 609 MiB, and 728 to 947 MiB above 150 GiB).
const RESERVED_MIB: f64 = 620.0;
const RESERVED_MIB_LARGE: f64 = 950.0;
const LARGE_MIB: f64 = 150.0 * 1024.0;

/// Usable GiB per GB of the product's name where no driver figure is known: HBM parts of the catalogue keep
/// 0.987 to 0.991, GDDR parts with ECC 0.91 to 0.925; the lower end is taken.
const USABLE_SHARE_HBM: f64 = 0.985;
const USABLE_SHARE_GDDR: f64 = 0.91;

/// Usable memory of one GPU.
pub(super) struct Usable {
    pub bytes: Bytes,
    pub assumed: bool,
    pub source: String,
}

/// Usable memory of each row: what torch reports as total, or the nearest that can be derived.
pub(super) fn usable_memories(rows: &[GpuRow]) -> Vec<Usable> {
    rows.iter()
        .map(|row| {
            known_memory(&row.memory)
                .or_else(|| {
                    let sibling = rows.iter().filter(|r| r.key != row.key).find(|r| same_memory(r, row))?;
                    let known = known_memory(&sibling.memory)?;
                    let source = format!("as {} (same memory), {}", sibling.key, known.source);
                    Some(Usable { assumed: true, source, ..known })
                })
                .unwrap_or_else(|| derived_memory(row))
        })
        .collect()
}

/// Same family and size, and a part whose figure is known.
fn same_memory(a: &GpuRow, b: &GpuRow) -> bool {
    a.memory.marketing_gb == b.memory.marketing_gb
        && a.architecture == b.architecture
        && (family_of(&a.key) == family_of(&b.key)
            || a.memory.driver_total_mib.is_some() && a.memory.driver_total_mib == b.memory.driver_total_mib)
        && known_memory(&a.memory).is_some()
}

fn known_memory(memory: &MemoryRow) -> Option<Usable> {
    if let Some(mib) = memory.usable_mib {
        let source = "driver total minus driver reserved (gpus.json)".to_owned();
        return Some(Usable { bytes: Bytes::from_f64(mib * MIB), assumed: false, source });
    }
    let gib = memory.torch_total_gib_seen?;
    let source = format!("{gib} GiB as torch printed it (gpus.json)");
    Some(Usable { bytes: Bytes::from_f64(gib * GIB), assumed: false, source })
}

fn derived_memory(row: &GpuRow) -> Usable {
    if let Some(total) = row.memory.driver_total_mib {
        let reserved = if total > LARGE_MIB { RESERVED_MIB_LARGE } else { RESERVED_MIB };
        let source =
            format!("driver total {total} MiB minus {reserved} MiB reserved (inferred from like parts)");
        return Usable { bytes: Bytes::from_f64((total - reserved) * MIB), assumed: true, source };
    }
    // Graphics cards carry GDDR with inline ECC, which takes memory; HBM parts lose none to it.
    let gddr = row.form_factor == "PCIe"
        && matches!(row.architecture.as_str(), "Turing" | "Ada Lovelace" | "Blackwell")
        || matches!(row.key.as_str(), "a10" | "a10g" | "a40" | "rtx-a6000" | "rtx-3090");
    let share = if gddr { USABLE_SHARE_GDDR } else { USABLE_SHARE_HBM };
    #[expect(clippy::cast_precision_loss, reason = "a size in GB")]
    let gib = row.memory.marketing_gb as f64 * share;
    let source = format!("{} GB x {share} GiB usable (inferred from like parts)", row.memory.marketing_gb);
    Usable { bytes: Bytes::from_f64(gib * GIB), assumed: true, source }
}
