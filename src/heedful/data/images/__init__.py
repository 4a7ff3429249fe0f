"""Images as data: with captions or with labels.

Reading order: `image_files` and `array_files` (pixels), `features` and `feature_files` (grids of
vectors), `caption_files` and `captions` (sources), `example_formats`, `batching` (what a captioner
gets), `labeled_images` with `idx_files` (digits on a canvas).
"""
