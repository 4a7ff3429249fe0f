"""Classification of images by glimpses: recurrent models of visual attention."""
