"""Images as data: with captions or with labels.

Reading order: `image_files` and `array_files` (pixels), `features` (grids of vectors),
`caption_files` and `captions` (sources), `batching` (what a captioner gets), `labeled_images`
(digits on a canvas).
"""
