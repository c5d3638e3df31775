//! The markers, and how the viewer shows them.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker, StaticSchemaMarkerField,
    StringHandle,
};

const fn text(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format: MarkerFieldFormat::String, flags: MarkerFieldFlags::SEARCHABLE }
}

/// A kernel, copy or memset.
pub struct GpuWork {
    /// The kernel, or the direction of a copy.
    pub name: StringHandle,
    /// The shape of a kernel, or the size of a copy.
    pub details: StringHandle,
    /// Its colour.
    pub category: CategoryHandle,
}

impl StaticSchemaMarker for GpuWork {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "GpuWork";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}, {marker.data.details}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[text("details", "Shape or size")];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.details
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// A marker that consists of its name.
macro_rules! named {
    ($(#[doc = $doc:literal] $name:ident)*) => {$(
        #[doc = $doc]
        pub struct $name(pub StringHandle);

        impl StaticSchemaMarker for $name {
            const UNIQUE_MARKER_TYPE_NAME: &'static str = stringify!($name);
            const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
            const FIELDS: &'static [StaticSchemaMarkerField] = &[];

            fn name(&self, _: &mut Profile) -> StringHandle {
                self.0
            }

            fn category(&self, _: &mut Profile) -> CategoryHandle {
                CategoryHandle::OTHER
            }

            fn string_field_value(&self, _: u32) -> StringHandle {
                self.0
            }

            fn number_field_value(&self, _: u32) -> f64 {
                0.0
            }
        }
    )*};
}

named! {
    /// An NVTX range or mark.
    NvtxRange
    /// A time without GPU records, or why a recording of the recent past was written.
    Notice
}

/// What concerns the whole recording.
pub struct About {
    /// Its name in the viewer.
    pub name: StringHandle,
    /// The ledger as JSON.
    pub ledger: StringHandle,
}

impl StaticSchemaMarker for About {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Recording";
    const FIELDS: &'static [StaticSchemaMarkerField] = &[text("ledger", "Ledger")];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.ledger
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}
